"""What the hostile tests share: the templates, made once, and the folder to work in."""

import pytest

from hostile.templates import make_templates


@pytest.fixture(scope="session")
def templates(tmp_path_factory):
    """The folder of all templates; nobody writes into it."""
    with pytest.MonkeyPatch.context() as patch:
        root = tmp_path_factory.mktemp("templates").resolve()
        patch.setenv("ARCWISE_DATA", str(root / "cache"))
        yield make_templates(root)


@pytest.fixture
def at_templates(templates, monkeypatch):
    """The same as the working folder, its caches in use."""
    monkeypatch.setenv("ARCWISE_DATA", str(templates / "cache"))
    monkeypatch.chdir(templates)
    return templates
