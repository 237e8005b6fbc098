"""The site: its reference leaves no name out, its first page runs, and it is built without a warning."""

import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import arcwise

ROOT = Path(__file__).parents[1]
SOURCES = ("docs", "src", "zensical.toml", "CONTRIBUTING.md", "CHANGELOG.md")
LISTED = [
    path
    for page in sorted(ROOT.glob("docs/api/*.md"))
    for path in re.findall(r"^::: (\S+)", page.read_text(), flags=re.M)
]


def public(module):
    """The names that a package re-exports, as it says by `import name as name`."""
    return set(re.findall(r"import (\w+) as \1$", Path(module.__file__).read_text(), flags=re.M))


def test_every_name_of_the_door_every_margin_and_every_metric_stands_in_the_reference():
    listed = {path.rpartition(".")[2] for path in LISTED}
    margins = {kind.__name__ for kind in arcwise.MARGINS.values()}
    assert (set(arcwise.HOMES) | margins | public(arcwise.metrics)) - listed == set()
    assert all(any(path.startswith(f"arcwise.{module}.") for path in LISTED) for module in arcwise.MODULES)
    assert len(LISTED) == len(set(LISTED))


def test_a_name_of_the_reference_is_the_one_that_is_imported():
    for path in LISTED:
        home, _, name = path.rpartition(".")
        found = getattr(importlib.import_module(home), name)
        assert name not in arcwise.HOMES or found is getattr(arcwise, name), path


def test_the_references_first_page_names_the_whole_door():
    assert set(re.findall(r"`(\w+)`", (ROOT / "docs" / "api" / "index.md").read_text())) >= set(arcwise.__all__)


def test_every_page_has_a_place_in_the_sites_menu():
    listed = set(re.findall(r'"([\w/]+\.md)"', (ROOT / "zensical.toml").read_text()))
    pages = {str(page.relative_to(ROOT / "docs")) for page in ROOT.glob("docs/**/*.md")}
    assert listed == pages | {"CONTRIBUTING.md", "CHANGELOG.md"}


def test_the_first_pages_code_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "index.md").read_text(), flags=re.S)
    command = [sys.executable, "-W", "error", "-c", code + "assert found.x.shape == (len(found.y), 2)"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    if not all(map(importlib.util.find_spec, ("zensical", "mkdocstrings_handlers"))):
        pytest.skip("the site's tools are not installed; make site installs them")
    copy = tmp_path_factory.mktemp("repository")
    for name in SOURCES:
        (shutil.copytree if (ROOT / name).is_dir() else shutil.copy)(ROOT / name, copy / name)
    done = subprocess.run([sys.executable, "docs/make_site.py"], capture_output=True, text=True, cwd=copy)
    assert done.returncode == 0, done.stdout + done.stderr
    return copy / "site"


def test_the_site_is_built_without_a_warning_and_has_every_page(site):
    for page in [*ROOT.glob("docs/**/*.md"), ROOT / "docs" / "CONTRIBUTING.md", ROOT / "docs" / "CHANGELOG.md"]:
        assert (site / page.relative_to(ROOT / "docs").with_suffix(".html")).is_file(), page


def test_the_sites_reference_has_signatures_examples_and_formulas(site):
    text = (site / "api" / "heads.html").read_text()
    assert 'id="arcwise.heads.Head"' in text and 'id="arcwise.heads.Head.forward"' in text
    assert "The margin loss of raw embeddings x" in text and "language-pycon" in text
    assert "<blockquote>" not in text  # an example that was taken for a quotation


def test_the_sites_search_knows_the_pages_and_the_names(site):
    entries = json.loads((site / "search.json").read_text())["items"]
    assert {"index.html", "CONTRIBUTING.html", "LOG.html"} <= {entry["location"] for entry in entries}
    assert any(entry["location"].endswith("#arcwise.heads.Head") for entry in entries)


def test_the_site_brings_the_reports_the_film_and_links_that_lead_somewhere(site):
    brought = [
        path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*") if path.suffix in (".pdf", ".gif")
    ]
    assert len(brought) >= 5 and all((site / path).is_file() for path in brought)
    for page in site.rglob("*.html"):
        if page.name != "404.html":  # its links begin at the root of wherever it is served
            for link in re.findall(r'(?:href|src)="([^"#?]+)', page.read_text()):
                assert link.startswith("https:") or (page.parent / link).exists(), (page.name, link)


def test_the_site_loads_nothing_from_elsewhere(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 10
    for page in pages:
        loaded = re.findall(r'<(?:script|img|link|iframe)\b[^>]*?(?:src|href)="(https?:[^"]+)', page.read_text())
        assert loaded == [], page
