"""`arcwise evaluate`: measures runs or files of embeddings, and prints every number under its full name."""

from __future__ import annotations

import fnmatch
import json
import sys
from pathlib import Path
from shlex import quote

from arcwise.errors import ArcwiseError


def evaluate_command(
    what: list[Path],
    /,
    *,
    unseen: Path | None = None,
    prototypes: Path | None = None,
    only: str = "*",
    again: bool = False,
    json_: bool = False,
) -> None:
    """Measure embeddings: clusters, conflicts, pairs, open set.

    Parameters
    ----------
    what
        Runs, whose metrics.json takes the numbers, comparisons (all their finished runs), or files of embeddings.
    unseen
        A second file with embeddings of classes that were not in training.
    prototypes
        The run (or file of prototypes) whose head judges a file of embeddings: accuracy and the open set need it.
    only
        Print the numbers whose names match, as in "dunn-*" or "unseen-*".
    again
        Measure again what was measured before.
    json_
        Print for a machine.
    """
    every = [path for one in what for path in unfolded(one)]
    from arcwise.metrics.summary import METRICS, number_text

    measured = {str(path): numbers_of(path, unseen, prototypes, again=again) for path in every}
    found = {path: {name: values[name] for name in fnmatch.filter(values, only)} for path, values in measured.items()}
    if not any(found.values()):
        raise ArcwiseError(nothing_matches(only, {name for values in measured.values() for name in values}))
    if json_:
        print(json.dumps(found))
        return
    for path, values in found.items():
        if len(found) > 1:
            print(path)
        if not values:
            print(f"{'-':>11}  {nothing_matches(only, set(measured[path]))}")
        for name, value in values.items():
            text = "∞" if value is None else number_text(name, value)
            print(f"{text:>11}  {name:44} {METRICS[name].label}")
    after = f"figures {quote(str(what[0]))}" if what[0].is_dir() else f"evaluate {quote(str(what[0]))} --only 'dunn-*'"
    print(f"Next: arcwise {after}", file=sys.stderr)


def nothing_matches(only: str, there: set[str]) -> str:
    """Why no number is printed: there is none of that name, or what was given does not allow it."""
    from arcwise.metrics.summary import METRICS

    wanted = fnmatch.filter(METRICS, only)
    listed = f"The names there are: {', '.join(name for name in METRICS if name in there)}."
    if not wanted:
        return f"no number is called {only!r}. {listed}"
    why = "it needs embeddings of classes that were not in training: --unseen FILE"
    if any(name.startswith("open-") or name in ("accuracy",) or name.startswith("margin-") for name in wanted):
        why = "it needs the prototypes of a run: --prototypes RUN, and for the open set also --unseen FILE"
    return f"{only!r} cannot be measured here: {why}. {listed}"


def unfolded(path: Path) -> list[Path]:
    """The finished runs of a comparison; anything else as it is."""
    from arcwise.records import Comparison

    if not Comparison(path).exists():
        return [path]
    return [run.path for many in Comparison.open(path).finished_runs().values() for run in many]


def numbers_of(path: Path, unseen: Path | None, prototypes: Path | None, *, again: bool) -> dict[str, float | None]:
    """The numbers of a run, or of a file of embeddings."""
    from arcwise.measure import measure
    from arcwise.metrics.summary import all_metrics, finite_or_null
    from arcwise.records import Embeddings, Prototypes, Run

    if path.is_dir():
        if unseen is not None or prototypes is not None:
            raise ArcwiseError("--unseen and --prototypes go with a file of embeddings; a run brings its own.")
        return measure(Run.open(path), again=again)["measured"]
    centres = None
    if prototypes is not None:
        centres = Run.open(prototypes).prototypes() if prototypes.is_dir() else Prototypes.load(prototypes)
    others = None if unseen is None else Embeddings.load(unseen)
    return finite_or_null(all_metrics(Embeddings.load(path), others, centres))
