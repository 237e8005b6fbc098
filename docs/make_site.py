"""The site, in site/: every page of docs/, those of the repository's root, and the reference from the docstrings.

The pages are read in the repository too, so their links are written for it. In the site all of them lie in one folder,
build/pages, and links between docs/ and the root lose the step between the two.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build" / "pages"
FROM_ROOT = ("CONTRIBUTING.md", "CHANGELOG.md")
UP = re.compile(rf"\]\(\.\./((?:\.\./)*(?:{'|'.join(map(re.escape, FROM_ROOT))}))")
ALL_IS_WELL = "No issues found"


def gather() -> None:
    """Lays the pages out in build/pages."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    for page in PAGES.rglob("*.md"):
        page.write_text(UP.sub(r"](\1", page.read_text()))
    for name in FROM_ROOT:
        (PAGES / name).write_text((ROOT / name).read_text().replace("](docs/", "]("))


def build() -> str:
    """Builds site/ anew; what there is to complain about, which is nothing when all is well.

    The tool's strict mode counts its own warnings. Those of the reference come by logging, on the same stream.
    """
    shutil.rmtree(ROOT / "site", ignore_errors=True)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    said = "\n".join(line for line in done.stderr.splitlines() if line != ALL_IS_WELL)
    return said or (done.stdout if done.returncode else "")


if __name__ == "__main__":
    gather()
    if complaints := build():
        sys.exit(complaints)
    print(f"The site is in {ROOT / 'site'}. Look at it: python -m http.server -d site")
