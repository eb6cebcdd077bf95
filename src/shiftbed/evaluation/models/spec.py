"""The one line that names a model: ``PREFIX:NAME[?key=value&key=value…]``.

Keys are those of the prefix, the fields of ``Preprocessing`` (and ``crop_pct``), ``weights``,
``num_classes``, ``seed`` and ``pretrained``. ``%26`` stands for an ``&`` within a value. Files that
cannot say their preprocessing have it in ``NAME.preprocessing.json`` beside them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from shiftbed.errors import InputError, unknown
from shiftbed.evaluation.models.base import versions
from shiftbed.evaluation.models.checkpoints import digest
from shiftbed.evaluation.preprocessing import Preprocessing
from shiftbed.foreign_code import MINE, Origin
from shiftbed.places import keys_in
from shiftbed.reading.files import read_json
from shiftbed.reading.shapes import plain

PREPROCESSING = (*(f.name for f in fields(Preprocessing)), "crop_pct")
_TRUE, _FALSE = ("true", "1", "yes"), ("false", "0", "no")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A parsed specification."""

    text: str
    prefix: str
    name: str
    query: Mapping[str, str]

    @classmethod
    def parse(cls, text: str) -> "Spec":
        prefix, colon, rest = text.partition(":")
        name = rest.partition("?")[0]
        if not colon or not name:
            raise InputError(
                f"a model is given as PREFIX:NAME, such as timm:resnet18, got {text!r}"
            )
        return cls(text=text, prefix=prefix, name=name, query=keys_in(text))


@dataclass(frozen=True, kw_only=True)
class Request:
    """A specification with the options given beside it; what each family's ``load`` gets."""

    spec: Spec
    device: str = "cpu"
    precision: str = "float32"
    preprocessing: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | None = None
    classes: int | None = None
    """How many classes there must be."""
    class_names: tuple[str, ...] = ()
    templates: tuple[str, ...] = ()
    trusted: tuple[str, ...] = ()
    """Types that an sklearn file may hold beyond the usual ones."""
    origin: Origin = MINE
    """Who wrote the specification, and whether code that files name is executed."""

    def check_keys(self, *known: str) -> None:
        """Refuse keys that neither this prefix nor preprocessing knows."""
        names = (*known, *PREPROCESSING)
        for key in self.spec.query:
            if key not in names:
                raise unknown(f"key of {self.spec.prefix}:", key, names)

    def text(self, key: str) -> str | None:
        return self.spec.query.get(key)

    def flag(self, key: str, default: bool) -> bool:
        value = self.spec.query.get(key)
        if value is not None and value.lower() not in _TRUE + _FALSE:
            raise InputError(f"{self.spec.text}: {key} must be true or false, got {value!r}")
        return default if value is None else value.lower() in _TRUE

    def integer(self, key: str) -> int | None:
        value = self.spec.query.get(key)
        if value is not None and not value.isdecimal():
            raise InputError(f"{self.spec.text}: {key} must be a whole number, got {value!r}")
        return None if value is None else int(value)

    @property
    def seed(self) -> int:
        return self.integer("seed") or 0

    def preprocess(self, native: Preprocessing) -> Preprocessing:
        """The model's own preprocessing with the changes that were asked for."""
        asked = {k: _value(k, v) for k, v in self.spec.query.items() if k in PREPROCESSING}
        changes = {**asked, **self.preprocessing}
        return native.override(**changes) if changes else native

    def asks_for(self, *names: str) -> bool:
        """Whether all of these fields of preprocessing were given."""
        return all(n in self.preprocessing or n in self.spec.query for n in names)

    def identity(
        self, name: str, native: Preprocessing, used: Preprocessing, **query: str | int | None
    ) -> str:
        """The canonical id: name, then all that differs from the default, sorted."""
        found = {k: str(v) for k, v in query.items() if v is not None}
        found |= {k: _shown(v) for k, v in used.changes_from(native).items()}
        if self.precision != "float32":
            found["precision"] = self.precision
        tail = "&".join(f"{k}={found[k]}" for k in sorted(found))
        return f"{self.spec.prefix}:{name}" + (f"?{tail}" if tail else "")

    @property
    def drawn(self) -> dict[str, str | int | None]:
        """The part of an id that says that weights are random."""
        return {"pretrained": "false", "seed": self.seed}

    def facts(
        self,
        architecture: str,
        weights: Path | Mapping[str, Any] | None,
        *libraries: str,
        **more: Any,
    ) -> dict[str, Any]:
        """What the record says of a model: None are random weights, drawn with the seed."""
        if isinstance(weights, Path):
            weights = {"file": weights.name, "sha256": digest(weights)}
        elif weights is None:
            weights = {"random": True, "seed": self.seed}
        known = {"spec": self.spec.text, "architecture": architecture, "weights": weights}
        return {**known, **more, "libraries": versions(*libraries)}

    def expect(self, classes: int) -> None:
        """Refuse a model whose number of classes is not the one asked for."""
        wanted = self.classes or self.integer("num_classes")
        if wanted is not None and classes != wanted:
            raise InputError(f"{self.spec.text} has {classes} classes, not {wanted}")

    def only_float32(self) -> None:
        if self.precision != "float32":
            raise InputError(
                f"{self.spec.text}: precision is an option of torch models; this one runs as it is"
            )


def stamp(path: Path) -> str:
    """A weights file in an id: its name and the beginning of its SHA-256."""
    return f"{path.name}@{digest(path)[:12]}"


def _value(key: str, text: str) -> Any:
    """A field of preprocessing from text: ``224``, ``224x288``, ``0.5,0.5,0.5``, ``bicubic``."""
    try:
        if key in ("size", "resize"):
            sides = tuple(int(side) for side in text.split("x"))
            return sides[0] if len(sides) == 1 else sides
        if key in ("mean", "std"):
            return tuple(float(value) for value in text.split(","))
        if key in ("fill", "crop_pct"):
            return int(text) if key == "fill" else float(text)
    except ValueError:
        raise InputError(f"{key} cannot be {text!r}; expected numbers") from None
    return text


def _shown(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    if not all(isinstance(v, int) for v in value):
        return ",".join(f"{v:g}" for v in value)
    return str(value[0]) if value[0] == value[1] else "x".join(map(str, value))


def sidecar_of(file: Path) -> Path:
    """Where a model file's preprocessing is looked for.

    >>> sidecar_of(Path("models/net.onnx")).name
    'net.preprocessing.json'
    """
    return file.with_name(f"{file.stem}.preprocessing.json")


def native_preprocessing(
    request: Request,
    file: Path,
    *,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    needed: Sequence[str] = ("mean", "std"),
) -> Preprocessing:
    """Preprocessing of a model file: its side-car over what the file itself says.

    Without a side-car, the fields in ``needed`` must have been asked for: a guess would cost more
    accuracy than most shifts do.
    """
    known: dict[str, Any] = {"mode": "L" if channels == 1 else "RGB"}
    if size is not None:
        known["size"] = size
    place = sidecar_of(file)
    if place.is_file():
        return Preprocessing.from_dict(known | _read(place))
    needed = needed if size is not None else ("size", *needed)
    if not request.asks_for(*needed):
        raise InputError(
            f"{file} does not say its preprocessing: write {place.name} beside it, or give "
            f"{', '.join(needed)} (as preprocessing or as keys: ?mean=0.5,0.5,0.5&std=…)"
        )
    return Preprocessing.from_dict({"size": (1, 1), **known})


def _read(place: Path) -> dict[str, Any]:
    found = read_json(place)
    if not isinstance(found, dict) or not plain(found):
        raise InputError(f"{place}: must be a JSON object with the fields of preprocessing")
    return found
