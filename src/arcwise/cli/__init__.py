"""The command line, one file per verb; exit code 0 done, 1 our message, 2 usage. Each verb imports what it needs."""

from __future__ import annotations

import sys

from cyclopts import App, CycloptsError, Parameter

import arcwise
from arcwise.errors import ArcwiseError

app = App(
    name="arcwise",
    help="Angular-margin embeddings: exact, finite, and in bounded memory.",
    version=f"arcwise {arcwise.__version__}",
    result_action="return_value",
    suppress_keyboard_interrupt=False,
    default_parameter=Parameter(negative=(), consume_multiple=True),
)
app.command("arcwise.cli.advise:run", name="advise", help="Suggest a scale s and a margin m, with the reasons.")
app.command("arcwise.cli.plan:run", name="plan", help="Say what a head of so many classes needs and costs on a GPU.")
app.command("arcwise.cli.train:run", name="train", help="Train a recipe into a run folder.")
app.command("arcwise.cli.compare:run", name="compare", help="Train several heads over several seeds, side by side.")
app.command("arcwise.cli.evaluate:run", name="evaluate", help="Measure runs or files of embeddings.")
app.command("arcwise.cli.report:figures", name="figures", help="Draw the figures of finished runs.")
app.command(
    "arcwise.cli.report:report", name="report", help="Write a report on finished runs: HTML, PDF, figures, animations."
)
app.command("arcwise.cli.recipes:run", name="recipes", help="List what can be trained by name.")
app.command("arcwise.cli.data:app", name="data", help="List data sources, get one, or show what it holds.")
app.command("arcwise.cli.embed:run", name="embed", help="Write the embeddings of images into one file.")
app.command("arcwise.cli.margins:run", name="margins", help="List the margins, or write their illustrated page.")


def main(tokens: list[str] | None = None) -> None:
    """Runs one command and leaves with its exit code."""
    sys.exit(code_of(sys.argv[1:] if tokens is None else tokens))


def code_of(tokens: list[str]) -> int:
    """The exit code of one command line; messages for the person go to stderr, without a traceback."""
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    try:
        app(tokens, exit_on_error=False, print_error=True)
        sys.stdout.flush()
    except CycloptsError:
        verb = f" {tokens[0]}" if tokens and tokens[0] in list(app) else ""
        print(f"Try: arcwise{verb} --help", file=sys.stderr)
        return 2
    except ArcwiseError as error:
        print(f"arcwise: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # `arcwise ... | head` is no error
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"arcwise: {error.filename or 'cannot write the result'}: {error.strerror}.", file=sys.stderr)
        sys.stdout = None  # nothing is left to flush at exit
        return 1
    except KeyboardInterrupt:
        print("arcwise: stopped.", file=sys.stderr)
        return 130
    return 0
