"""Shows a comparison while it trains, and its table when it is done."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

from arcwise.cli.progress import clock, terminal
from arcwise.cli.streams import harmless, raw_stream

if TYPE_CHECKING:
    from arcwise.compare.plan import Job
    from arcwise.study.table import Table


class ComparisonDisplay:
    """Listens to the workers: a bar for the whole and a line per run under way; plain lines elsewhere."""

    def __init__(self) -> None:
        self.total, self.done, self.reused = 0, 0, 0
        self.shares: dict[str, float] = {}
        self.steps: dict[str, dict[str, Any]] = {}
        self.states: dict[str, str] = {}
        self.began = self.line_at = time.monotonic()
        self.live: Any = None

    def __enter__(self) -> ComparisonDisplay:
        return self

    def begin(self, total: int) -> None:
        """A comparison of so many runs begins."""
        self.total += total
        self.began = time.monotonic()
        if terminal() and self.live is None:
            from rich.console import Console
            from rich.live import Live

            self.live = Live(
                console=Console(file=raw_stream(sys.stderr)), refresh_per_second=4, get_renderable=self.panel
            )
            self.live.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the terminal as it was found."""
        if self.live is not None:
            self.live.stop()
            self.live = None

    def __call__(self, job: Job, event: dict[str, Any]) -> None:
        kind, name = event["kind"], job.label
        if kind == "planned":
            self.begin(event["total"])
        elif kind == "start":
            self.steps[name], self.states[name] = event, "training"
        elif kind == "steps" and name in self.steps:
            self.shares[name] = event["step"] / self.steps[name]["total"]
            self.say_now_and_then()
        elif kind == "measuring":
            self.states[name] = "measuring"
        elif kind == "data":
            self.states[name] = event["what"]
        elif kind == "done":
            self.reused += name not in self.steps
            self.finish(name, event)

    def finish(self, name: str, event: dict[str, Any]) -> None:
        """One run is done."""
        self.done += 1
        self.shares.pop(name, None)
        self.states.pop(name, None)
        if self.live is None:
            took = f"{event['seconds']:.0f} s" if name in self.steps else "there already"
            print(
                f"[{self.done}/{self.total}] {name}: accuracy {event['accuracy']:.2%}, {took}{self.left()}",
                file=sys.stderr,
                flush=True,
            )

    def say_now_and_then(self) -> None:
        """A plain line every ten seconds, where nobody watches a panel."""
        if self.live is None and time.monotonic() - self.line_at > 10.0:
            self.line_at = time.monotonic()
            now = ", ".join(f"{name} {share:.0%}" for name, share in self.shares.items())
            print(f"[{self.done}/{self.total}] {now}{self.left()}", file=sys.stderr, flush=True)

    def left(self) -> str:
        """How long it still takes, from what was trained so far; nothing while there is too little to tell."""
        under_way = sum(self.shares.values())
        made = self.done - self.reused + under_way
        if made < 0.05:
            return ""
        return f", {clock((time.monotonic() - self.began) * (self.total - self.done - under_way) / made)} left"

    def panel(self) -> Any:
        """The live picture."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid.grid(padding=(0, 1))
        done = self.done + sum(self.shares.values())
        left = self.left().removeprefix(", ") or "starting"
        grid.add_row(ProgressBar(total=self.total, completed=done, width=40), f"{self.done} of {self.total} runs", left)
        for name, state in list(self.states.items()):
            share = self.shares.get(name, 0.0)
            words = [Text(harmless(word)) for word in (name, state if state != "training" else "")]
            grid.add_row(ProgressBar(total=1.0, completed=share, width=40), *words)
        return grid


def print_table(table: Table) -> None:
    """Mean and spread of the main numbers, one row each, one column per head."""
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    seeds = max(map(len, table.seeds.values()))
    grid = Grid(
        title=f"mean ± standard deviation over {seeds} seeds" if seeds > 1 else "one seed", title_justify="left"
    )
    grid.add_column("")
    for head in table.heads:
        grid.add_column(Text(harmless(head)), justify="right")
    for row in table.headline_rows():
        grid.add_row(*(Text(harmless(cell)) for cell in row))
    Console(file=raw_stream(sys.stdout), width=None if sys.stdout.isatty() else 160).print(grid)
