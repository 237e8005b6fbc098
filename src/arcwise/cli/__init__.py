"""The command line, one file per verb; exit code 0 done, 1 our message, 2 usage. Each verb imports what it needs."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console

from arcwise.cli.streams import guard_streams, raw_stream
from arcwise.errors import ArcwiseError
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
    "evaluate": ("arcwise.cli.evaluate:evaluate_command", "Measure runs or files of embeddings."),
    "figures": ("arcwise.cli.figures:figures_command", "Draw the figures of finished runs."),
    "report": ("arcwise.cli.report:report_command", "Write a report on finished runs: HTML, PDF, figures, animations."),
    "recipes": ("arcwise.cli.recipes:recipes_command", "List what can be trained by name."),
    "data": ("arcwise.cli.data:data_app", "List data sources, get one, or show what it holds."),
    "embed": ("arcwise.cli.embed:embed_command", "Write the embeddings of images into one file."),
    "margins": ("arcwise.cli.margins:margins_command", "List the margins, or write their illustrated page."),
}


def know_verbs() -> None:
    """Tells the command line of every verb that it does not know yet; none of them is imported for that."""
    for verb, (function, words) in VERBS.items():
        if verb not in app:
            app.command(function, name=verb, help=words)


def code_of(tokens: list[str]) -> int:
    """The exit code of one command line; messages for the person go to stderr, without a traceback."""
    know_verbs()
    before = sys.stdout, sys.stderr, warnings.showwarning
    guard_streams()
    try:
        app(tokens, exit_on_error=False, print_error=False, console=console())
        sys.stdout.flush()
    except CycloptsError as error:
        verb = f" {tokens[0]}" if tokens and tokens[0] in VERBS else ""
        print(f"arcwise: {error}\nTry: arcwise{verb} --help", file=sys.stderr)
        return 2
    except ArcwiseError as error:
        print(f"arcwise: {error}", file=sys.stderr)
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
    return 0


def forget_output() -> None:
    """Leaves nothing to be flushed into a stream that takes no more."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    """What draws help and tables, on a terminal as it is."""
    return Console(file=raw_stream(sys.stdout))
