"""Figures: one file per picture, each with what it shows of a Subject and how it is drawn; FIGURES lists them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from arcwise.errors import ArcwiseError
from arcwise.figures.angles import angle_histograms
from arcwise.figures.bias import bias_and_frequency
from arcwise.figures.canvas import SIDE_BY_SIDE, Depiction
from arcwise.figures.circle import unit_circle
from arcwise.figures.confidence import confidence_surface
from arcwise.figures.conflict_images import conflict_triples
from arcwise.figures.confusion import confusion_matrices
from arcwise.figures.dunn_epochs import dunn_over_epochs
from arcwise.figures.glance import at_a_glance
from arcwise.figures.neighbours import neighbours
from arcwise.figures.plane import biased_plane, embedding_plane
from arcwise.figures.roc import verification_curves
from arcwise.figures.sample import one_sample
from arcwise.figures.samples import samples
from arcwise.figures.sphere import unit_sphere
from arcwise.figures.story import eight_classes
from arcwise.figures.sweep import scale_sweep
from arcwise.figures.training import training_curves

if TYPE_CHECKING:
    from arcwise.study.subject import Subject

Place = Literal[
    "first", "glance", "method", "data", "embeddings", "training", "classes", "pairs", "dunn", "sweep", "bias"
]


class Illustration(NamedTuple):
    """A figure by name: the section of a report that shows it, the function that draws it, and a few words.

    The function yields captions and pictures, none where the runs do not allow any. The text of a report says of the
    figure what `words` say, after its number. `side_by_side` means that only the first few heads are in it.
    """

    section: Place
    draw: Callable[[Subject], Iterator[Depiction]]
    words: str
    side_by_side: bool = False


FIGURES: dict[str, Illustration] = {
    "embeddings": Illustration("first", embedding_plane, "the embeddings under each head", True),
    "glance": Illustration("glance", at_a_glance, "the main numbers seed by seed"),
    "schematic": Illustration("method", eight_classes, "the idea in a sketch"),
    "samples": Illustration("data", samples, "some of the images"),
    "circle": Illustration("embeddings", unit_circle, "where directions fall on the circle", True),
    "sphere": Illustration("first", unit_sphere, "directions on the sphere", True),
    "sample": Illustration("embeddings", one_sample, "one image and its logits under each head", True),
    "angles": Illustration("embeddings", angle_histograms, "angles to the own and the nearest other centre", True),
    "confidence": Illustration("embeddings", confidence_surface, "how sure each head is over the plane", True),
    "training": Illustration("training", training_curves, "the course of training"),
    "dunn-epochs": Illustration("dunn", dunn_over_epochs, "the variants over the epochs", True),
    "sweep": Illustration("sweep", scale_sweep, "the main numbers over s and m"),
    "roc": Illustration("pairs", verification_curves, "verification of pairs", True),
    "confusion": Illustration("classes", confusion_matrices, "what was taken for what", True),
    "conflicts": Illustration("classes", conflict_triples, "samples that lie nearer to another class", True),
    "neighbours": Illustration("pairs", neighbours, "queries with their nearest neighbours"),
    "boundaries": Illustration("bias", biased_plane, "the boundaries without a bias and with one"),
    "bias": Illustration("bias", bias_and_frequency, "biases against class sizes"),
}


class Drawing(NamedTuple):
    """A picture: its name in FIGURES, its caption, and the figure."""

    name: str
    caption: str
    figure: Any


def drawings(about: Subject, *, only: str = "") -> Iterator[Drawing]:
    """Every picture that these runs allow, in the order of FIGURES; `only` picks one by its name."""
    some = f" Shown are {SIDE_BY_SIDE} of {len(about.heads)} heads."
    for name, entry in FIGURES.items():
        if only in ("", name):
            try:
                for caption, figure in entry.draw(about):
                    few = entry.side_by_side and len(about.heads) > SIDE_BY_SIDE
                    yield Drawing(name, caption + some * few, figure)
            except ArcwiseError as error:
                if only:  # asked for by name: say why it cannot be; else the others go on without it
                    raise
                about.note(f"the figure {name}, because {str(error)[0].lower()}{str(error)[1:]}")
