"""Damaged files: whatever is in a file, its reader gives what it holds or an ArcwiseError, in time, and lets it be."""

import shutil
import time

import pytest

from hostile.cases import Bench, summary
from hostile.counts import Counts, first_seed, wanted
from hostile.found import FILES
from hostile.readers import READERS
from hostile.templates import no_waiting

AT_ONCE = 600  # cases of all readers that every test run tries


@pytest.fixture
def bench(at_templates, tmp_path):
    """A function from a reader's name to its bench."""
    with no_waiting():
        yield lambda name: Bench(name, at_templates, tmp_path)


def cases_of(name, total):
    """How many of all cases a reader gets, by its share."""
    return round(total * READERS[name].share / sum(reader.share for reader in READERS.values()))


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_in_words(name, bench):
    seeds = range(cases_of(name, AT_ONCE))
    place = bench(name) if seeds else None
    findings = [finding for seed in seeds if (finding := place.attempt(place.draw(seed))[1]) is not None]
    assert not findings, summary(findings)


@pytest.mark.parametrize(("name", "edits"), FILES, ids=[f"{name} {at}" for at, (name, _) in enumerate(FILES)])
def test_what_was_found_in_files_stays_mended(name, edits, bench):
    finding = bench(name).attempt(edits)[1]
    assert finding is None, summary([finding])


def test_what_is_not_damaged_is_read(bench):
    """The oracle itself: without an edit every reader returns, and nothing has changed."""
    for name in (name for name, reader in READERS.items() if not name.startswith("insightface")):
        if READERS[name].share <= 1:  # those that draw
            continue
        end, finding = bench(name).attempt(())
        assert (end, finding) == ("returned", None), name


@pytest.mark.slow
def test_a_hundred_thousand_damaged_files(bench, tmp_path):
    counts, findings = Counts("files"), []
    for name in READERS:
        place = bench(name)
        for seed in range(first_seed(), first_seed() + max(1, cases_of(name, wanted("FILES")))):
            began = time.perf_counter()
            end, finding = place.attempt(place.draw(seed))
            counts.add(name, end, time.perf_counter() - began)
            findings += [finding] if finding is not None else []
        shutil.rmtree(place.folder)
        print(f"{name}: {counts.total:,} cases, {len(findings)} findings", flush=True)
    counts.close(len({finding.group for finding in findings}))
    assert not findings, summary(findings)
