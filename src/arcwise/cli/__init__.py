"""The command line, one file per verb; exit code 0 done, 1 our message, 2 usage. Each verb imports what it needs."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import warnings
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from arcwise.cli.streams import guard_streams, raw_stream
from arcwise.errors import AlreadyTold, ArcwiseError
from arcwise.version import __version__

app = App(
    name="arcwise",
    help="Angular-margin embeddings: exact, finite, and in bounded memory.",
    version=f"arcwise {__version__}",
    help_format="plaintext",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(negative=(), consume_multiple=True),
)
# What is typed, the function that does it, and what --help says of it.
VERBS: dict[str, tuple[str, str]] = {
    "advise": ("arcwise.cli.advise:advise_command", "Suggest a scale s and a margin m, with the reasons."),
    "plan": ("arcwise.cli.plan:plan_command", "Say what a head of so many classes needs and costs on a GPU."),
    "train": ("arcwise.cli.train:train_command", "Train a recipe into a run folder."),
    "compare": ("arcwise.cli.compare:compare_command", "Train several heads over several seeds, side by side."),
    "evaluate": ("arcwise.cli.evaluate:evaluate_command", "Measure runs, files of embeddings, or a model on images."),
    "figures": ("arcwise.cli.figures:figures_command", "Draw the figures of finished runs."),
    "report": ("arcwise.cli.report:report_command", "Write a report on finished runs: HTML, PDF, figures, animations."),
    "recipes": ("arcwise.cli.recipes:recipes_command", "List what can be trained by name."),
    "data": ("arcwise.cli.data:data_app", "List data sources, get one, or show what it holds."),
    "embed": ("arcwise.cli.embed:embed_command", "Write the embeddings of images into one file."),
    "verify": ("arcwise.cli.verify:verify_command", "Say whether images show the same."),
    "pairs": ("arcwise.cli.pairs:pairs_app", "Draw pairs of images to try models on."),
    "gallery": ("arcwise.cli.gallery:gallery_app", "Enroll people by their images, and ask who is on one."),
    "export": ("arcwise.cli.export:export_command", "Write a model as an ONNX file that needs no torch."),
    "calibrate": ("arcwise.cli.calibrate:calibrate_command", "Find the threshold for a wanted false accept rate."),
    "checkpoint": (
        "arcwise.cli.checkpoint:checkpoint_app",
        "Look into checkpoints, join them, change a run's classes.",
    ),
    "margins": ("arcwise.cli.margins:margins_command", "List the margins, or write their illustrated page."),
}


WITHOUT_TORCH = (
    "this needs torch: pip install torch. Without it embed, verify, evaluate, calibrate and gallery work, with an "
    ".onnx file that arcwise export wrote and images in files."
)


def know_verbs() -> None:
    """Tells the command line of every verb that it does not know yet; none of them is imported for that."""
    for verb, (function, words) in VERBS.items():
        if verb not in app:
            app.command(function, name=verb, help=words)


def code_of(tokens: list[str] | None = None) -> int:
    """The exit code of one command line, the one that was typed if none is given; messages go to stderr."""
    tokens = sys.argv[1:] if tokens is None else tokens
    know_verbs()
    before, hook = (sys.stdout, sys.stderr, warnings.showwarning), sys.unraisablehook
    guard_streams()
    sys.unraisablehook = partial(tell_unraisable, hook)
    try:
        app(tokens, exit_on_error=False, print_error=False, console=console())
        sys.stdout.flush()
    except CycloptsError as error:
        print(f"arcwise: {error}{hint_for(tokens)}\nTry: arcwise{verb_words(tokens)} --help", file=sys.stderr)
        return 2
    except AlreadyTold:
        return 1
    except ArcwiseError as error:
        print(f"arcwise: {error}", file=sys.stderr)
        return 1
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        print(f"arcwise: {WITHOUT_TORCH}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `arcwise ... | head` is no error
        forget_output()
        return 0
    except OSError as error:
        print(f"arcwise: {error.filename or 'cannot write the result'}: {error.strerror}.", file=sys.stderr)
        forget_output()
        return 1
    except KeyboardInterrupt:
        print("arcwise: stopped.", file=sys.stderr)
        return 130
    finally:
        sys.stdout, sys.stderr, warnings.showwarning = before
        sys.unraisablehook = hook
    return 0


def tell_unraisable(hook: Callable[[sys.UnraisableHookArgs], object], found: sys.UnraisableHookArgs) -> None:
    """An error where nothing can be raised, as the hook tells it; a Ctrl-C that falls there is no error."""
    if not issubclass(found.exc_type, KeyboardInterrupt):
        hook(found)


def verb_words(tokens: list[str]) -> str:
    """The verb that a command line begins with, with its own verb where it has some, as in data show."""
    if not tokens or tokens[0] not in VERBS:
        return ""
    try:
        below = tokens[1:2] and tokens[1] in set(app[tokens[0]])
    except (KeyError, TypeError):
        below = False
    return f" {tokens[0]} {tokens[1]}" if below else f" {tokens[0]}"


def hint_for(tokens: list[str]) -> str:
    """What to type where settings follow each other after one --set."""
    for at, (one, other) in enumerate(pairwise(tokens)):
        if "=" in one and "=" in other and not other.startswith("-") and tokens[max(0, at - 1)] == "--set":
            return f"\nEach setting has its own --set: --set {one} --set {other}"
    if tokens[:1] == ["train"] and len(tokens) > 2 and not tokens[2].startswith("-"):
        return f"\nImages are named by --data: arcwise train {tokens[1]} --data {spelt_as_source(tokens[2])}"
    return ""


def spelt_as_source(word: str) -> str:
    """A word as the source it seems to be: a folder's path gets its spelling."""
    return shlex.quote(f"folder:{word}" if Path(word).is_dir() else word)


def forget_output() -> None:
    """Leaves nothing to be flushed into a stream that takes no more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    """What draws help and tables, on a terminal as it is."""
    return Console(file=raw_stream(sys.stdout))
