"""Shows what a long command is doing: a live panel on a terminal, plain lines elsewhere; always on stderr."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

from arcwise.cli.streams import raw_stream


def terminal() -> bool:
    """Whether a person watches."""
    return sys.stderr.isatty()


def clear_line() -> None:
    """Takes away the line that is on the terminal, if a person watches."""
    if terminal():
        print("\r\x1b[K", end="", file=raw_stream(sys.stderr), flush=True)


def byte_text(count: int) -> str:
    """A number of bytes in words.

    >>> byte_text(11_500_000)
    '11.5 MB'
    """
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count:,} B"


def clock(seconds: float) -> str:
    """A duration as a person reads it.

    >>> clock(75), clock(3700)
    ('1:15', '1:01:40')
    """
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


class Counter:
    """Tells how far a download or a decoding is: in place on a terminal, every few seconds elsewhere."""

    def __init__(self, unit: Callable[[int], str] = str):
        self.unit, self.last, self.what = unit, 0.0, ""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        finished = total is not None and done >= total
        pause = 0.1 if terminal() else 5.0
        if not finished and what == self.what and time.monotonic() - self.last < pause:
            return
        self.last, self.what = time.monotonic(), what
        amount = self.unit(done) + (f" of {self.unit(total)}" if total else "") if done or total else "..."
        if terminal() and total:
            amount = f"{'━' * round(30 * done / total):╌<30} {amount}"
        end = "\n" if finished or not terminal() else ""
        clear_line()
        print(f"{what}: {amount}", end=end, file=sys.stderr, flush=True)


def image_text(count: int) -> str:
    """A number of images.

    >>> image_text(1), image_text(2000)
    ('1 image', '2,000 images')
    """
    return f"{count:,} image{'s' * (count != 1)}"


def degrees(radians: float | None) -> str:
    """An angle as a person reads it; linear heads and empty groups may have none."""
    return "-" if radians is None else f"{math.degrees(radians):.1f}°"


def teller() -> Callable[[str], None]:
    """Says on stderr what is being done, with the seconds since the start."""
    began = time.monotonic()

    def tell(what: str) -> None:
        clear_line()
        end = "" if terminal() else "\n"
        print(f"{time.monotonic() - began:5.1f} s  {what}", end=end, file=sys.stderr, flush=True)

    return tell


class TrainDisplay:
    """Listens to training and shows it: what, how far, how well, how fast, how long still."""

    def __init__(self) -> None:
        self.start: dict[str, Any] = {}
        self.evaluations: list[dict[str, Any]] = []
        self.latest: dict[str, Any] = {}
        self.bar: Any = None
        self.decoding = Counter(image_text)
        self.fetching = Counter(byte_text)
        self.line_at, self.began = 0.0, time.monotonic()

    def __call__(self, entry: dict[str, Any]) -> None:
        getattr(self, f"on_{entry['kind']}", lambda _: None)(entry)

    def __enter__(self) -> TrainDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leaves the terminal as it was found."""
        if self.bar is not None:
            self.bar.stop()
            self.bar = None

    def on_data(self, entry: dict[str, Any]) -> None:
        """Data on its way."""
        counter = self.decoding if entry["what"].startswith("decoding") else self.fetching
        counter(entry["what"], entry["done"], entry["total"])

    def on_start(self, entry: dict[str, Any]) -> None:
        """What will be trained."""
        self.start, self.began = entry, time.monotonic()
        parts = ", ".join(f"{count:,} {name}" for name, count in entry["images"].items())
        print(
            f"{entry['head']} · {entry['classes']} classes · {parts} · {entry['device']} · {entry['out']}",
            file=sys.stderr,
        )
        if entry.get("looks") and not entry["step"]:
            words = ", ".join(f"{what} (else --set {flag})" for what, flag in entry["looks"].items())
            print(f"images: {words}", file=sys.stderr)
        for note in entry.get("notes", ()):
            print(f"note: {note}", file=sys.stderr)
        if entry["step"]:
            print(f"going on from step {entry['step']} of {entry['total']}", file=sys.stderr)
        for name, reason in list(entry["broken"].items())[:20]:
            print(f"skipped {name}: {reason}", file=sys.stderr)
        if len(entry["broken"]) > 20:
            print(f"skipped {len(entry['broken']) - 20} more broken images", file=sys.stderr)
        if terminal():
            from rich.console import Console
            from rich.live import Live

            self.bar = Live(
                console=Console(file=raw_stream(sys.stderr)), refresh_per_second=8, get_renderable=self.panel
            )
            self.bar.start()

    def on_steps(self, entry: dict[str, Any]) -> None:
        """A group of steps is done."""
        self.latest = entry
        if self.bar is None and time.monotonic() - self.line_at > 5.0:
            self.line_at = time.monotonic()
            print(self.sentence(entry), file=sys.stderr, flush=True)

    def on_evaluation(self, entry: dict[str, Any]) -> None:
        """An epoch was judged."""
        self.evaluations.append(entry)
        if self.bar is None:
            print(
                f"epoch {entry['epoch']:3d}  {entry['part']} accuracy {entry['accuracy']:.2%}  own "
                f"{degrees(entry['angle_own'])}  nearest other {degrees(entry['angle_other'])}",
                file=sys.stderr,
                flush=True,
            )

    def sentence(self, entry: dict[str, Any]) -> str:
        """One line on a group of steps."""
        return (
            f"step {entry['step']:,} of {self.start['total']:,}  epoch {entry['epoch']:.1f}  loss "
            f"{loss_text(entry['loss'])}  accuracy {entry['accuracy']:.2%}  own {degrees(entry['angle_own'])}  nearest "
            f"other {degrees(entry['angle_other'])}  {entry['images_per_second']:,.0f} images/s  "
            f"{clock(self.left(entry))} left"
        )

    def left(self, entry: dict[str, Any]) -> float:
        """Seconds that training will still take, from how long it took so far."""
        done = entry["step"] - self.start["step"]
        return (time.monotonic() - self.began) / max(done, 1) * (self.start["total"] - entry["step"])

    def panel(self) -> Any:
        """The live picture: a bar, the numbers of the last steps, and of the last epochs."""
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        step, total = self.latest.get("step", self.start["step"]), max(self.start["total"], 1)
        top = Table.grid(padding=(0, 1))
        left = f"{clock(self.left(self.latest))} left" if self.latest else "warming up"
        top.add_row(ProgressBar(total=total, completed=step, width=40), f"{step / total:4.0%}", left)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for column in ("", "loss", "accuracy", "own centre", "nearest other", "images/s"):
            table.add_column(column, justify="left" if not column else "right")
        for entry in self.evaluations[-4:]:
            table.add_row(f"{entry['part']}, epoch {entry['epoch']}", *journal_row(entry), "")
        if self.latest:
            speed = f"{self.latest['images_per_second']:,.0f}"
            table.add_row(
                Text(f"train, epoch {self.latest['epoch']:.1f}", style="bold"), *journal_row(self.latest), speed
            )
        return Group(top, table)


def journal_row(entry: dict[str, Any]) -> tuple[str, str, str, str]:
    """Loss, accuracy and both angles as text."""
    return (
        loss_text(entry["loss"]),
        f"{entry['accuracy']:.2%}",
        degrees(entry["angle_own"]),
        degrees(entry["angle_other"]),
    )


def loss_text(value: float | None) -> str:
    """A loss as text."""
    return "-" if value is None else f"{value:.3f}"
