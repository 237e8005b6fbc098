"""CalibratedThreshold: where "the same" begins for a model, the error rate it was chosen for, what that rests on."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arcwise.errors import ArcwiseError
from arcwise.records.files import FORMAT, read_json, write_json
from arcwise.records.lock import locked
from arcwise.schema import Check, many, nothing_or, number, table, text, truth, whole

A_SHARE = number(0.0, 1.0)
TOLD: dict[str, Check] = {
    "far": number(1e-12, 0.5), "cosine": number(-1.1, 1.1), "angle_degrees": nothing_or(number(0.0, 180.0)),
    "squared_l2": number(-0.5, 4.5), "far_found": A_SHARE, "far_low": A_SHARE, "far_high": A_SHARE,
    "tar": nothing_or(A_SHARE), "tar_low": A_SHARE, "tar_high": A_SHARE, "identities": whole(2), "images": whole(2),
    "impostor_pairs": whole(1), "genuine_pairs": whole(0), "evenness": number(1e-3, 1e7), "source": text, "date": text,
    "model": text, "few_identities": truth,
}  # fmt: skip
RECORD = table(TOLD)
FILE = table({"kind": text, "thresholds": many(RECORD)})
NAME = "thresholds.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedThreshold:
    """Two images are of one identity when their cosine is at least `cosine`; chosen for a false accept rate of `far`.

    `far_found` is the rate on the identities of `source`, `far_low` and `far_high` its 95 % interval over identities;
    `model` is the fingerprint of the encoder. `few_identities` says, for ever, that there were too few of them.
    """

    far: float
    cosine: float
    far_found: float
    far_low: float
    far_high: float
    tar: float | None
    tar_low: float
    tar_high: float
    identities: int
    images: int
    impostor_pairs: int
    genuine_pairs: int
    evenness: float
    source: str
    date: str
    model: str
    few_identities: bool = False

    @property
    def angle(self) -> float | None:
        """The same as an angle in radians; none where no cosine reaches the threshold."""
        return math.acos(max(-1.0, self.cosine)) if self.cosine <= 1.0 else None

    @property
    def squared_l2(self) -> float:
        """The same as a squared distance of unit vectors: 2 - 2 cos."""
        return 2.0 - 2.0 * self.cosine

    def as_values(self) -> dict[str, Any]:
        """The record as plain values, angle and distance side by side with the cosine."""
        angle = None if self.angle is None else round(math.degrees(self.angle), 6)
        beside = {"angle_degrees": angle, "squared_l2": self.squared_l2}
        return dict(sorted({**dataclasses.asdict(self), **beside}.items(), key=lambda at: list(TOLD).index(at[0])))

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> CalibratedThreshold:
        """The record that `as_values` wrote: cosine, angle and distance say the same thing, or somebody changed one."""
        known = {field.name for field in dataclasses.fields(cls)}
        found = cls(**{key: value for key, value in values.items() if key in known})
        again = found.as_values()
        for name in ("angle_degrees", "squared_l2"):
            one, other = values.get(name, again[name]), again[name]
            if (one is None) != (other is None) or abs((one or 0.0) - (other or 0.0)) > 1e-4:
                raise ArcwiseError(
                    f"a threshold's cosine is {found.cosine:.6f} and its {name} {one}, which is another: it was "
                    "changed by hand, and the rates beside it are not its own. Calibrate again with: arcwise calibrate"
                )
        return found

    def told(self) -> str:
        """The threshold and what it rests on, in a sentence."""
        shown = "no angle" if self.angle is None else f"{math.degrees(self.angle):.1f}°"
        few = " Too few identities for that rate: take it for no more than a try." if self.few_identities else ""
        return (
            f"threshold {self.cosine:.4f} ({shown}): chosen for a false accept rate of {rate_text(self.far)} on "
            f"{self.identities:,} identities of {self.source}, where it had {rate_text(self.far_found)}; on others of "
            f"their kind {rate_text(self.far_low)} to {rate_text(self.far_high)} (95 %).{few}"
        )


def rate_text(rate: float) -> str:
    """A rate as a person reads it.

    >>> rate_text(0.001), rate_text(0.0123456), rate_text(2.5e-6), rate_text(0.0)
    ('0.1 %', '1.23 %', '0.00025 %', '0 %')
    """
    return f"{float(f'{100 * rate:.3g}'):.10f}".rstrip("0").rstrip(".") + " %"


def thresholds_file(model: str | Path) -> Path:
    """Where the thresholds of a model lie: beside it, or in its Run."""
    path = Path(model)
    return (path if path.is_dir() else path.parent) / NAME


def read_thresholds(path: Path) -> list[CalibratedThreshold]:
    """The thresholds in a file, of whatever models; none where there is no file."""
    if not path.is_file():
        return []
    cure = "Remove it or put it back; arcwise calibrate writes another."
    values = read_json(path, FILE, cure=cure)
    if values["kind"] != "thresholds":
        raise ArcwiseError(f"{path} holds no thresholds of arcwise. {cure}")
    return [CalibratedThreshold.from_values(one) for one in values["thresholds"]]


def keep_threshold(path: Path, found: CalibratedThreshold) -> Path:
    """The file, once the threshold is in it, in the place of one for the same model and rate."""
    with locked(path.parent, wait=True, name=f".{path.name}.lock"):
        others = [one for one in read_thresholds(path) if (one.model, one.far) != (found.model, found.far)]
        return write_json(path, thresholds_values([*others, found]))


def thresholds_values(some: Iterable[CalibratedThreshold]) -> dict[str, Any]:
    """Thresholds as the values of their file."""
    return {"kind": "thresholds", "format": FORMAT, "thresholds": [one.as_values() for one in some]}


def moment(date: str) -> float:
    """When that was, in seconds, wherever the clock stood; what is no date comes first.

    >>> moment("2026-01-01T09:00:00+0900") == moment("2026-01-01T00:00:00+0000"), moment("yesterday")
    (True, -inf)
    """
    try:
        return datetime.datetime.fromisoformat(date).timestamp()
    except (ValueError, OverflowError, OSError):
        return -math.inf


def latest(some: Iterable[CalibratedThreshold]) -> list[CalibratedThreshold]:
    """Of thresholds of one model and rate the one that was calibrated last; of equals the one that comes later."""
    kept: dict[tuple[str, float], CalibratedThreshold] = {}
    for one in sorted(some, key=lambda one: moment(one.date)):
        kept.pop((one.model, one.far), None)
        kept[one.model, one.far] = one
    return list(kept.values())


def pick_threshold(
    some: Iterable[CalibratedThreshold], model: str, *, far: float | None = None
) -> CalibratedThreshold | None:
    """The threshold of a model for a rate, or the one calibrated last; none where it has none."""
    mine = sorted(latest(one for one in some if one.model == model), key=lambda one: moment(one.date))
    if far is None or not mine:
        return mine[-1] if mine else None
    for one in mine:
        if math.isclose(one.far, far, rel_tol=1e-9):
            return one
    rates = ", ".join(f"{one.far:g}" for one in mine)
    raise ArcwiseError(f"there is no threshold for FAR {far:g}, only for {rates}. Make one with: arcwise calibrate")
