"""HeadSpec: which head it is, in one noun; the only place where a head is read from text or written as text.

arcface:m=0.3,s=16    a name, then what is not left to its default
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from arcwise.errors import ArcwiseError

Value = bool | int | float | str

LINEAR_HEADS = {"softmax": "softmax", "softmax-bias": "softmax + bias"}

# Titles and margins of heads in Runs that were written before a Run told them itself.
EARLIER: dict[str, tuple[str, float | None]] = {
    "normface": ("NormFace", None), "sphereface": ("SphereFace", 4.0), "cosface": ("CosFace", 0.35),
    "arcface": ("ArcFace", 0.5), "combined": ("combined margin", None), "adaface": ("AdaFace", 0.4),
    "magface": ("MagFace", None), "elastic-arcface": ("ElasticFace-Arc", 0.5),
    "elastic-cosface": ("ElasticFace-Cos", 0.35), "curricularface": ("CurricularFace", 0.5),
    "mv-softmax": ("MV-Softmax", 0.35), "noise-filter": ("noise filter", None),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadSpec:
    """A head by its name, scale s, margin m, sub-centres k and the margin's other parameters; None is the default.

    `title` is the name a person reads. It comes from the margin itself, so a spec that was only read from text
    shows the name as it was typed.

    >>> spec = HeadSpec.parse("arcface:m=0.3,s=16")
    >>> spec.name, spec.m, spec.s, str(spec)
    ('arcface', 0.3, 16.0, 'arcface:m=0.3,s=16')
    """

    name: str
    s: float | None = None
    m: float | None = None
    k: int | None = None
    parameters: Mapping[str, Value] = field(default_factory=dict)
    title: str = ""

    @classmethod
    def parse(cls, text: str) -> HeadSpec:
        """The head that a text names.

        >>> HeadSpec.parse("mv-softmax:t=1.1").parameters
        {'t': 1.1}
        """
        name, given = parse_named(text)
        own: dict[str, Any] = {key: given.pop(key) for key in ("s", "m", "k") if key in given}
        numbers: dict[str, Any] = {key: own_number(key, value) for key, value in own.items()}
        return cls(name=name, parameters=given, **numbers)

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> HeadSpec:
        """The spec that `as_values` wrote, from a file that a person may have edited."""
        kinds = {"name": str, "title": str, "s": (int, float), "m": (int, float), "k": int, "parameters": dict}
        for key, value in values.items():
            if key not in kinds or isinstance(value, bool) or not isinstance(value, kinds[key]):
                raise ArcwiseError(f"a head is told by {', '.join(kinds)}; {key}={value!r} does not belong there.")
        if not values.get("name"):
            raise ArcwiseError("the head has no name.")
        for key, value in values.get("parameters", {}).items():
            if not isinstance(value, bool | int | float | str):
                raise ArcwiseError(f"a head's parameter is a number, a word or a truth; {key} is {value!r}.")
        numbers = {key: own_number(key, value) for key, value in values.items() if key in ("s", "m", "k")}
        return cls(**{**values, **numbers})  # type: ignore[arg-type]

    def as_values(self) -> dict[str, Any]:
        """The spec as plain values, for JSON."""
        told = {"name": self.name, "title": self.title, "s": self.s, "m": self.m, "k": self.k}
        return {key: value for key, value in told.items() if value not in (None, "")} | {
            "parameters": dict(self.parameters)
        }

    def __str__(self) -> str:
        given = {**self.parameters, **self.numbers}
        return self.name + (
            ":" + ",".join(f"{key}={shown_value(value)}" for key, value in given.items()) if given else ""
        )

    @property
    def numbers(self) -> dict[str, float]:
        """m, s and k, of those that are set."""
        found = {"m": self.m, "s": self.s, "k": self.k}
        return {key: value for key, value in found.items() if value is not None}

    @property
    def label(self) -> str:
        """The head as a person writes it.

        >>> HeadSpec(name="arcface", title="ArcFace", m=0.5, s=16.0).label, HeadSpec(name="softmax").label
        ('ArcFace m=0.5 s=16', 'softmax')
        """
        given = sorted({**self.parameters, **self.numbers}.items())
        name = self.title or LINEAR_HEADS.get(self.name, self.name)
        return " ".join([name, *(f"{key}={shown_value(value)}" for key, value in given)])

    @property
    def linear(self) -> bool:
        """Whether this is a plain softmax: lengths count, and there is neither scale nor margin."""
        return self.name in LINEAR_HEADS

    def earlier(self) -> HeadSpec:
        """The spec with title and margin filled in as they were when Runs did not tell them."""
        title, m = EARLIER.get(self.name, ("", None))
        return replace(self, title=self.title or title, m=m if self.m is None else self.m)


def own_number(key: str, value: object) -> float | int:
    """s or m as a number, k as a whole one."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if key == "k" and whole:
        return value  # type: ignore[return-value]
    if key == "k" or not (whole or isinstance(value, float)):
        raise ArcwiseError(f"{key} must be a {'whole ' * (key == 'k')}number, got {value!r}.")
    return float(value)  # type: ignore[arg-type]


def parse_named(text: str) -> tuple[str, dict[str, Value]]:
    """The name and the parameters of "name:key=value,key=value".

    >>> parse_named("arcface:m=0.3,continuation=paper")
    ('arcface', {'m': 0.3, 'continuation': 'paper'})
    """
    if not isinstance(text, str):
        raise ArcwiseError(f'expected a name such as "arcface" or "arcface:m=0.3", got {text!r}.')
    name, _, rest = text.strip().partition(":")
    parameters: dict[str, Value] = {}
    for part in filter(None, (part.strip() for part in rest.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not (key and equals and value) or key in parameters:
            raise ArcwiseError(f"cannot read {part!r} in {text!r}: write name:key=value,key=value, each key once.")
        parameters[key] = parse_value(value)
    return name.strip().lower(), parameters


def parse_value(text: str) -> Value:
    """A bool, a whole number, a number, or the text itself.

    >>> parse_value("true"), parse_value("3"), parse_value("0.5"), parse_value("paper")
    (True, 3, 0.5, 'paper')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def shown_value(value: Value) -> str:
    """A parameter as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, int | float) else value


def split_heads(text: str) -> list[str]:
    """The heads of a list whose parameters have commas of their own.

    >>> split_heads("softmax,arcface:m=0.3,s=16,normface")
    ['softmax', 'arcface:m=0.3,s=16', 'normface']
    """
    heads: list[str] = []
    for word in (word.strip().lower() for word in text.split(",")):
        if not word:
            raise ArcwiseError(
                f"heads are separated by one comma each, as in softmax,arcface:m=0.3,s=16; got {text!r}."
            )
        if "=" in word and ":" not in word and heads:
            heads[-1] += ("," if ":" in heads[-1] else ":") + word
        else:
            heads.append(word)
    refuse_twins(heads)
    return heads


def refuse_twins(heads: Iterable[str]) -> None:
    """Raises when one head is named twice, in whatever order its parameters stand."""
    seen: list[HeadSpec] = []
    for head in heads:
        spec = HeadSpec.parse(head)
        if spec in seen:
            raise ArcwiseError(f"a head is named twice: {head}.")
        seen.append(spec)


def folder_name(head: str, seed: int) -> str:
    """The folder of one run of a comparison.

    >>> folder_name("arcface:m=0.3,s=16", 1)
    'arcface-m0.3-s16-seed1'
    """
    return re.sub(r"[^A-Za-z0-9.+-]+", "-", head.replace("=", "")) + f"-seed{seed}"
