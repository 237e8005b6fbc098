"""Files are written whole or not at all."""

import pytest

from arcwise.errors import ArcwiseError
from arcwise.records import write


def test_a_file_is_replaced_whole(tmp_path):
    write(tmp_path / "deep" / "a.txt", "one")
    write(tmp_path / "deep" / "a.txt", b"two")
    assert (tmp_path / "deep" / "a.txt").read_text() == "two"
    assert len(list((tmp_path / "deep").iterdir())) == 1


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ArcwiseError, match="cannot write"):
        write(tmp_path / "folder", "text")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
