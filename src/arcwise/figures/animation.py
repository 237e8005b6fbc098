"""Animations of embeddings over the epochs: heads side by side in step, fixed axes, as GIF and MP4."""

from __future__ import annotations

import io
import shutil
import subprocess
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from arcwise.figures.canvas import (
    CLASS_COLOURS,
    LISTED,
    SCREEN_STYLE,
    class_colour,
    figure_bytes,
    grow_until_all_fits,
    name_at,
    paler,
    panels,
)
from arcwise.figures.sphere import View, cap_rim, draw_globe, frame
from arcwise.packing import largest_smallest_angle
from arcwise.records import Embeddings

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.text import Text
    from PIL.Image import Image

MILLISECONDS = 90
FILM_DPI, POSTER_DPI = 90, 220  # of the frames of a film, and of its last one on paper
ORBIT = 30  # frames in which a sphere turns on after the last epoch


def film_colours() -> list[tuple[int, int, int]]:
    """64 colours: greys, and every class's in five strengths on white, so that classes stay apart in a GIF."""
    greys = [(level, level, level) for level in (0, 26, 51, 77, 102, 128, 153, 170, 187, 204, 217, 230, 242, 255)]
    strengths = (0.15, 0.35, 0.6, 0.8, 1.0)
    return [*greys, *(on_white(colour, strength) for colour in CLASS_COLOURS for strength in strengths)]


def on_white(colour: str, strength: float) -> tuple[int, int, int]:
    """A colour as it looks when it is drawn on white with that opacity.

    >>> on_white("#ff0000", 0.5)
    (255, 128, 128)
    """
    red, green, blue = (round(255 - strength * (255 - int(colour[i : i + 2], 16))) for i in (1, 3, 5))
    return red, green, blue


class Track(NamedTuple):
    """One head's snapshots, epoch by epoch, with the words above it; `extent` fixes the axes.

    In three dimensions `extent` is what samples are divided by, and 0 puts them on the sphere.
    """

    title: str
    snapshots: list[Embeddings]
    centres: list[np.ndarray | None]
    words: list[str]
    extent: float


class Movie(NamedTuple):
    """The frames as they are shown, and the last as a poster for paper, in more dots."""

    frames: list[Image]
    poster: bytes

    def gif(self) -> bytes:
        """All frames in one palette; the last one stays for two seconds."""
        from PIL import Image

        palette = Image.new("P", (1, 1))
        palette.putpalette([value for colour in film_colours() for value in colour])
        small = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in self.frames]
        buffer = io.BytesIO()
        times = [MILLISECONDS] * (len(small) - 1) + [2000]
        small[0].save(buffer, "GIF", save_all=True, append_images=small[1:], duration=times, loop=0, optimize=False)
        return buffer.getvalue()

    def mp4(self) -> bytes | None:
        """The same as a film, where ffmpeg is installed."""
        if shutil.which("ffmpeg") is None:
            return None
        wide, high = (side - side % 2 for side in self.frames[0].size)
        command = (
            f"ffmpeg -v error -f rawvideo -pix_fmt rgb24 -s {wide}x{high} -r {1000 / MILLISECONDS:g} -i - -c:v "
            "libx264 -pix_fmt yuv420p -crf 23 -movflags frag_keyframe+empty_moov -f mp4 -"
        )
        raw = b"".join(image.crop((0, 0, wide, high)).tobytes() for image in [*self.frames, *self.frames[-1:] * 20])
        done = subprocess.run(command.split(), input=raw, capture_output=True)
        return done.stdout if done.returncode == 0 else None


def make_movie(tracks: list[Track], *, between: int = 3, points: int = 1200, turn: float = 150.0) -> Movie:
    """The frames: `between` steps from one snapshot to the next, samples moving in straight lines.

    Every epoch shown with its words is as measured; what lies between is there for the eye. `turn` is the number of
    degrees by which a sphere turns from the first frame to the last; at the end it turns on for a while, so that depth
    is seen.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from PIL import Image

    tracks = [thin(track, points) for track in tracks]
    flat = tracks[0].snapshots[0].dim == 2
    last = min(len(track.snapshots) for track in tracks) - 1
    moments = np.concatenate([np.linspace(0, last, last * between + 1), np.full(0 if flat else ORBIT, last)])
    frames = []
    with panels(len(tracks), widest=3.9, high=1.1, style=SCREEN_STYLE) as (figure, axes):
        canvas = FigureCanvasAgg(figure)
        stages = [
            (flat_stage if flat else round_stage)(place, track) for place, track in zip(axes, tracks, strict=True)
        ]
        figure.set_dpi(FILM_DPI)
        for stage in stages:
            stage.show(moments[0], View())
            stage.words.set_text(widest(stage.words, stage.track.words))  # room for what any epoch says
        keep_words_apart(figure, stages)
        grow_until_all_fits(figure)
        figure.set_layout_engine("none")  # panels keep their places from frame to frame
        for at, moment in enumerate(moments):
            view = View(azimuth=-60.0 + turn * at / max(len(moments) - 1, 1))
            for stage in stages:
                stage.show(moment, view)
            canvas.draw()
            frames.append(Image.fromarray(np.asarray(canvas.buffer_rgba())[..., :3].copy()))
        poster = figure_bytes(figure, dpi=POSTER_DPI)
    return Movie(frames, poster)


def widest(text: Text, every: list[str]) -> str:
    """The longest of some words when they are set like this."""
    wide = {}
    for words in dict.fromkeys(every):
        text.set_text(words)
        wide[words] = text.get_window_extent().width
    return max(wide, key=wide.__getitem__)


def keep_words_apart(figure: Figure, stages: Sequence[Stage]) -> None:
    """Smaller words above the panels where they would be wider than a panel's share of the figure."""
    share = 0.97 * figure.bbox.width / len(stages)
    wide = max(stage.words.get_window_extent().width for stage in stages)
    for stage in stages if wide > share else ():
        stage.words.set_fontsize(stage.words.get_fontsize() * share / wide)


def thin(track: Track, points: int) -> Track:
    """The same samples in every snapshot, not more than `points`."""
    rows = np.arange(len(track.snapshots[0].x))[:: max(1, -(-len(track.snapshots[0].x) // points))]
    return track._replace(snapshots=[e.take(rows) for e in track.snapshots])


class Stage:
    """One panel: lines that are moved, never drawn anew."""

    def __init__(self, axes: Any, track: Track, layers: int):
        self.axes, self.track = axes, track
        self.classes = range(len(track.snapshots[0].names))
        self.rows = [track.snapshots[0].labels == c for c in self.classes]
        looks = [(1.0, 0.6, 3.0)] if layers == 1 else [(0.35, 1.0, 2.5), (1.0, 0.6, 3.0)]  # strength, opacity, order
        self.clouds = [
            [
                axes.plot(
                    [],
                    [],
                    ".",
                    color=paler(class_colour(c), strength),
                    markersize=4.5,
                    alpha=alpha,
                    markeredgewidth=0,
                    zorder=order,
                )[0]
                for strength, alpha, order in looks
            ]
            for c in self.classes
        ]
        self.rays = [axes.plot([], [], color=class_colour(c), linewidth=1.6)[0] for c in self.classes]
        self.named = len(self.classes) <= LISTED
        for c in self.classes if self.named else ():
            name_at(axes, (0.0, 0.0), track.snapshots[0].names[c], fontsize=11, zorder=5)
        self.names = list(axes.texts)
        self.words = axes.text(0.5, 1.01, "", transform=axes.transAxes, ha="center", va="bottom", fontsize=10.5)

    def state(self, moment: float) -> tuple[np.ndarray, np.ndarray | None, str]:
        """Samples and centres between two snapshots, and the words of the last one reached."""
        last = len(self.track.snapshots) - 1
        i, j = min(int(moment), last), min(int(moment) + 1, last)
        share, (a, b) = moment - i, (self.track.snapshots[i].x, self.track.snapshots[j].x)
        v, w = self.track.centres[i], self.track.centres[j]
        centres = None if v is None or w is None else (1 - share) * v + share * w
        return (1 - share) * a + share * b, centres, self.track.words[i]


class FlatStage(Stage):
    """A plane with fixed axes."""

    def show(self, moment: float, view: View) -> None:
        """Puts everything where it is at that moment."""
        x, w, words = self.state(moment)
        for (cloud,), rows in zip(self.clouds, self.rows, strict=True):
            cloud.set_data(x[rows, 0], x[rows, 1])
        for name in self.names:
            name.set_visible(w is not None)
        if w is not None:
            w = w.reshape(len(w), -1, 2)[:, 0]
            w = w * 0.8 * self.track.extent / max(float(np.linalg.norm(w, axis=1).max()), 1e-12)
            for ray, tip in zip(self.rays, w, strict=True):
                ray.set_data([0, tip[0]], [0, tip[1]])
            for name, tip in zip(self.names, w, strict=False):
                name.set_position((1.12 * tip[0], 1.12 * tip[1]))
        self.words.set_text(words)


class RoundStage(Stage):
    """A sphere that turns slowly; faint caps round the centres have half the angle of the best possible packing."""

    def __init__(self, axes: Any, track: Track, layers: int):
        super().__init__(axes, track, layers)
        self.cap = largest_smallest_angle(max(len(self.classes), 2), 3)[0] / 2.0
        self.caps = [
            [axes.plot([], [], color=class_colour(c), linewidth=1.0, alpha=a, zorder=2)[0] for a in (0.15, 0.6)]
            for c in self.classes
        ]

    def show(self, moment: float, view: View) -> None:
        """Puts everything where it is at that moment, seen from there."""
        x, w, words = self.state(moment)
        size = self.track.extent or np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12)
        seen = view.turned(x / size)
        for layers, rows in zip(self.clouds, self.rows, strict=True):
            here = seen[rows]
            for cloud, side in zip(layers, (here[:, 2] <= 0, here[:, 2] > 0), strict=True):
                cloud.set_data(here[side, 0], here[side, 1])
        for name in self.names:
            name.set_visible(w is not None)
        if w is not None:
            w = w.reshape(len(w), -1, 3)[:, 0]
            unit = w / np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1e-12)
            tips = view.turned(unit) * 1.06
            for ray, tip in zip(self.rays, tips, strict=True):
                ray.set_data([0, tip[0]], [0, tip[1]])
                ray.set_alpha(1.0 if tip[2] > 0 else 0.25)
            for name, tip in zip(self.names, tips, strict=False):
                name.set_position((1.1 * tip[0], 1.1 * tip[1]))
                name.set_alpha(1.0 if tip[2] > 0 else 0.3)
            for (far, near), centre in zip(self.caps, unit, strict=True):
                rim = view.turned(cap_rim(centre, self.cap))
                for line, side in ((far, rim[:, 2:] <= 0), (near, rim[:, 2:] > 0)):
                    shown = np.where(side, rim, np.nan)
                    line.set_data(shown[:, 0], shown[:, 1])
        self.globe(view)
        self.words.set_text(words)

    def globe(self, view: View) -> None:
        """The globe's lines, drawn again as it turns."""
        for line in getattr(self, "lines", []):
            line.remove()
        before = set(self.axes.lines)
        draw_globe(self.axes, view)
        self.lines = [line for line in self.axes.lines if line not in before]
        for line in self.lines:
            line.set_zorder(0)


def flat_stage(axes: Any, track: Track) -> FlatStage:
    """A plane for 2-D embeddings."""
    e = track.extent
    axes.set(xlim=(-e, e), ylim=(-e, e), aspect="equal")
    axes.set_title(track.title, pad=22)
    return FlatStage(axes, track, 1)


def round_stage(axes: Any, track: Track) -> RoundStage:
    """A sphere for 3-D embeddings."""
    frame(axes, "")
    axes.set_title(track.title, pad=22)
    return RoundStage(axes, track, 2)
