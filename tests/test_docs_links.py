"""The documents' links: every file and every heading that they name is there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")), *ROOT.glob("docs/**/*.md")]
ELSEWHERE = ("http://", "https://", "mailto:")


def prose(path):
    """A document without its blocks of code."""
    return re.sub(r"^(```+).*?^\1", "", path.read_text(), flags=re.S | re.M)


def targets(path):
    """What the links and pictures of a document lead to."""
    text = re.sub(r"`[^`\n]+`", "", prose(path))
    inline = re.findall(r"\]\(\s*<?([^)\s>]+)", text)
    return [*inline, *re.findall(r"^\[[^\]]+\]:\s+(\S+)", text, flags=re.M)]


def anchors(path):
    """The headings of a document as GitHub and the site name them: a second one of the same words is numbered."""
    found = []
    for heading in re.findall(r"^#+ +(.+?)(?: +#+)?$", prose(path), flags=re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found.append(slug if slug not in found else f"{slug}-{sum(name == slug for name in found)}")
    return found


def broken(path):
    """The links of a document that lead nowhere, each with the reason."""
    for target in targets(path):
        if target.startswith(ELSEWHERE):
            continue
        name, _, anchor = target.partition("#")
        place = (path.parent / name).resolve() if name else path
        if target.startswith("/") or not place.is_file():
            yield target, "no such file"
        elif anchor and anchor not in anchors(place):
            yield target, f"no such heading; there are {', '.join(anchors(place))}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_link_in_the_documents_leads_somewhere(document):
    assert list(broken(document)) == []


def test_no_link_leaves_the_repository():
    assert {"README.md", "python.md", "heads.md", "training.md"} <= {document.name for document in DOCUMENTS}
    assert any(not name.startswith(ELSEWHERE) for name in targets(ROOT / "README.md"))
    for document in DOCUMENTS:
        relative = [name.partition("#")[0] for name in targets(document) if not name.startswith(ELSEWHERE)]
        assert all((document.parent / name).resolve().is_relative_to(ROOT) for name in relative), document


def test_a_link_to_a_missing_file_or_heading_is_found(tmp_path):
    other, page = tmp_path / "other.md", tmp_path / "page.md"
    other.write_text("# One thing\n\n## What `m` is: 2, or 3?\n\n## One thing\n\n```console\n# no heading\n```\n")
    page.write_text(
        "# Page\n[a](other.md) [b](other.md#one-thing-1) [c](#page) [d](other.md#what-m-is-2-or-3) `[e](nowhere)`\n"
        "[f](gone.md) [g](other.md#no-heading) ![h](gone.png) [i](/other.md)\n\n[k]: gone.pdf\n\n"
        "```python\nx[0](nowhere)\n```\n"
    )
    found = ["gone.md", "other.md#no-heading", "gone.png", "/other.md", "gone.pdf"]
    assert [target for target, _ in broken(page)] == found
    assert list(broken(other)) == []
