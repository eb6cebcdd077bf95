"""Frozen records that pass between the parts of the package."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError, unknown
from shiftbed.labels import LabelPolicy
from shiftbed.reading.shapes import any_text, misfit, real, text

ShiftKind = Literal[
    "natural-dataset", "consistency", "adversarially-filtered", "corruption", "adversarial"
]
KINDS: tuple[str, ...] = get_args(ShiftKind)
PERTURBED = ("corruption", "adversarial")
"""The kinds of shift that a perturbation makes."""
NATURAL = tuple(kind for kind in KINDS if kind not in PERTURBED)


_PERTURBATION = {
    **{"kind": str, "name": str, "id": str, "severity?": (None, int, float), "on_disk?": bool},
    "details?": dict,
}
_SETTING = {
    **{"test_set": str, "policy?": str, "policy_name?": str, "relabel?": bool, "name?": str},
    **{"share?": (None, int, float), "seed?": int, "window?": (None, int)},
    **{"perturbation?": _PERTURBATION, "clean?": dict, "mean_of?": [dict]},
}


@dataclass(frozen=True, kw_only=True)
class Perturbation:
    """What was done to the images: a corruption, an attack, or a function of one's own.

    >>> Perturbation(kind="corruption", name="fog", severity=3, id="fog:3").label
    'fog:3'
    """

    kind: str
    """corruption or adversarial: the kind of shift that it makes."""
    name: str
    """Without its size: ``fog``, ``pgd-linf``, ``python:mine:stripes``."""
    id: str
    """Canonical, with its size: ``fog:3``, ``pgd-linf:2/255``."""
    severity: int | None = None
    """Of a corruption that has severities."""
    on_disk: bool = False
    """Whether the images were written that way; in memory and on disk are never one setting."""
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """What else the result depends on (seed, steps, …), as JSON types."""

    def __post_init__(self) -> None:
        if self.kind not in PERTURBED:
            raise unknown("kind of perturbation", self.kind, PERTURBED)

    @property
    def label(self) -> str:
        return self.id + ("@disk" if self.on_disk else "")

    @property
    def place(self) -> str:
        """``memory`` or ``disk``."""
        return "disk" if self.on_disk else "memory"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a model meets: a test set, how it is judged, and what was done to its images.

    ``id`` is made here and read nowhere: what a setting is, its fields say.

    >>> clean = Setting(test_set="val", share=0.1)
    >>> fog = Perturbation(kind="corruption", name="fog", severity=3, id="fog:3")
    >>> clean.id, clean.perturbed(fog).id
    ('val@share-0.1', 'val@share-0.1+fog:3')
    """

    test_set: str
    """Name of the (clean) test set."""
    policy: LabelPolicy | None = None
    """How the model's classes and the test set's labels meet; None for the labels as they are."""
    policy_name: str = ""
    """What the policy is called in the id; nothing where it is the test set's own."""
    relabel: bool = False
    """Whether the labels are among the model's classes and go through the policy too: the
    class-subset twin of a whole test set."""
    share: float | None = None
    """Only this share of every class, drawn with ``seed``."""
    seed: int = 0
    window: int | None = None
    """Consistency on video: right on an anchor and on every frame within ± ``window``."""
    perturbation: Perturbation | None = None
    clean: "Setting | None" = None
    """The same without perturbation, or the anchors alone (pm-0)."""
    mean_of: tuple["Setting", ...] = ()
    """The settings that it is the mean of: accuracy is averaged, then fitted (taori2020)."""
    name: str = ""
    """An id of its own, instead of the rendered one."""

    @property
    def id(self) -> str:
        """TESTSET[@SUBSET][+PERTURBATION]: the name in stores, tables and on the command line."""
        if self.name:
            return self.name
        if self.perturbation is not None and self.clean is not None:
            return f"{self.clean.id}+{self.perturbation.label}"
        if self.mean_of:
            digest = hashlib.sha256("\n".join(one.id for one in self.mean_of).encode()).hexdigest()
            return f"mean-of-{len(self.mean_of)}-{digest[:12]}"
        parts = [self.policy_name] if self.policy_name else []
        if self.share is not None:
            parts.append(f"share-{self.share:g}" + (f"-seed-{self.seed}" if self.seed else ""))
        if self.window is not None:
            parts.append(f"pm-{self.window}")
        perturbed = "" if self.perturbation is None else f"+{self.perturbation.label}"
        return self.test_set + ("@" + ".".join(parts) if parts else "") + perturbed

    @property
    def kind(self) -> str:
        """The kind of shift from ``clean`` to this, nothing if it has none."""
        if self.perturbation is not None:
            return self.perturbation.kind
        kinds = {one.kind for one in self.mean_of}
        return kinds.pop() if len(kinds) == 1 else "consistency" if self.window else ""

    @property
    def whole(self) -> "Setting":
        """The same on all images instead of a share of them."""
        clean = None if self.clean is None else self.clean.whole
        parts = tuple(one.whole for one in self.mean_of)
        name = "" if self.share else self.name
        return replace(self, share=None, clean=clean, mean_of=parts, name=name)

    def perturbed(self, perturbation: Perturbation, *, name: str = "") -> "Setting":
        """This setting under a perturbation."""
        if self.perturbation is not None:
            raise InputError(f"setting {self.id!r} is perturbed already")
        return replace(self, perturbation=perturbation, clean=self, name=name)

    def under(self, policy: LabelPolicy, *, name: str = "") -> "Setting":
        """Its class twin: the same images judged by another label policy.

        >>> from shiftbed.labels import subset
        >>> Setting(test_set="val").under(subset([1, 2])).id
        'val@classes-1-2'
        """
        named = bool(self.name) and self.perturbation is None
        own = "" if named else self.policy_name
        return replace(
            self,
            test_set=self.name if named else self.test_set,
            policy=policy if self.policy is None else self.policy.then(policy),
            policy_name=f"{own}.{policy.key}" if own else policy.key,
            relabel=True,
            clean=None if self.clean is None else self.clean.under(policy),
            name=name,
        )

    def to_json(self) -> dict[str, Any]:
        """As JSON types, without what is at its default; see ``from_json``."""
        plain = ("test_set", "policy_name", "relabel", "share", "seed", "window", "name")
        defaults = {one.name: one.default for one in fields(self)}
        found = {k: getattr(self, k) for k in plain if getattr(self, k) != defaults[k]}
        if self.policy is not None:
            found["policy"] = self.policy.to_json()
        if self.perturbation is not None:
            kept = {**vars(self.perturbation), "details": dict(self.perturbation.details)}
            found["perturbation"] = {k: v for k, v in kept.items() if v is not None}
        if self.clean is not None:
            found["clean"] = self.clean.to_json()
        if self.mean_of:
            found["mean_of"] = [one.to_json() for one in self.mean_of]
        return found

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> "Setting":
        """The setting that ``to_json`` wrote.

        >>> made = Setting(test_set="val", share=0.1)
        >>> Setting.from_json(made.to_json()) == made
        True
        """
        try:
            where = misfit(found, _SETTING)
            if where is not None:
                raise InputError(f"{where!r} is missing or not what it was")
            given = dict(found)
            if "policy" in given:
                given["policy"] = LabelPolicy.from_json(given["policy"])
            if "perturbation" in given:
                given["perturbation"] = Perturbation(**given["perturbation"])
            if "clean" in given:
                given["clean"] = Setting.from_json(given["clean"])
            if "mean_of" in given:
                given["mean_of"] = tuple(Setting.from_json(one) for one in given["mean_of"])
            return Setting(**given)
        except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(f"not a record of a setting: {reason}") from None


_SHARE = re.compile(r"(?:(.*)\.)?share-([0-9.]+(?:e-?[0-9]+)?)(?:-seed-([0-9]+))?")


def older_setting(id: str, kind: str = "", details: Mapping[str, Any] | None = None) -> Setting:
    """The record of a setting in a store or testbed file made before records were kept.

    ``TESTSET[@SUBSET][+NAME:SEVERITY[@disk]]`` was the grammar of ids then. ``kind`` and
    ``details`` come from what the file says beside the id: a shift to it, a cell's record. Only
    the readers of such files call this.

    >>> older_setting("val@share-0.1+fog:3@disk").perturbation.severity
    3
    """
    base, plus, rest = id.rpartition("+")
    head, _, subset = (base if plus else id).partition("@")
    share = _SHARE.fullmatch(subset)
    clean = Setting(test_set=head, policy_name=subset)
    if share:
        clean = Setting(
            test_set=head,
            policy_name=share[1] or "",
            share=float(share[2]),
            seed=int(share[3] or 0),
        )
    if clean.id != (base if plus else id):
        clean = Setting(test_set=head, name=base if plus else id)
    if not plus and kind not in PERTURBED:
        return clean
    text = (rest if plus else id).removesuffix("@disk")
    name, _, size = text.rpartition(":")
    numbered = bool(name) and size.isdecimal()
    perturbation = Perturbation(
        kind=kind if kind in PERTURBED else "corruption",
        name=name if numbered else text.partition(":")[0],
        id=text,
        severity=int(size) if numbered else None,
        on_disk=rest.endswith("@disk"),
        details={k: v for k, v in (details or {}).items() if k not in ("id", "kind")},
    )
    return clean.perturbed(perturbation, name="" if plus else id)


_SHIFT = {
    **{"name": text, "kind": text, "source": [text], "target": text},
    **{f"{key}?": (None, real) for key in ("threshold", "knee", "full_knee")},
    **{"full_source?": (None, text)},
    **{f"{key}?": any_text for key in ("title", "task", "fit_on", "validation")},
}


@dataclass(frozen=True, kw_only=True)
class Shift:
    """From which ID settings the accuracy in which OOD setting is predicted.

    A pair over the same label space: ImageNet-A pairs with ``val`` on ImageNet-A's classes.
    Several sources make a plane instead of a line (shi2023, Section 4).

    >>> Shift(name="v2", kind="natural-dataset", source=("val",), target="imagenetv2").source
    ('val',)
    """

    name: str
    kind: str
    source: tuple[str, ...]
    """ID settings: one for a line, several for a plane."""
    target: str
    """OOD setting."""
    full_source: str | None = None
    """The whole ID set, where ``source`` is its class-subset twin."""
    threshold: float | None = None
    """taori2020's figures keep only models above this accuracy on the source."""
    knee: float | None = None
    """Where the published line breaks in two (ImageNet-A), as an accuracy on the source."""
    full_knee: float | None = None
    """The same on the whole ID set."""
    title: str = field(default="", compare=False)
    task: str = ""
    """The task whose domains it is between (wenzel2022); shifts of one task share their labels."""
    fit_on: str = ""
    """``COLUMN=PATTERN`` that baseline models must meet besides being in the fit set: where models
    are trained on different data, a line goes through those trained on its own ID data."""
    validation: str = ""
    """ID setting whose error networks may be chosen by (wenzel2022, Tables 2 and S2): images of the
    ID data that are neither trained on nor in ``source``. Nothing where there is none."""

    def __post_init__(self) -> None:
        source = (self.source,) if isinstance(self.source, str) else tuple(self.source)
        object.__setattr__(self, "source", source)
        if self.kind not in KINDS:
            raise unknown("kind of shift", self.kind, KINDS)
        if not self.source or not self.target:
            raise InputError(f"shift {self.name!r} needs at least one ID setting and an OOD one")

    @staticmethod
    def of(given: "Shift | str") -> "Shift":
        """A shift, or the one that a line of text says: NAME=ID:OOD, NAME=ID+ID2:OOD.

        >>> Shift.of("v2=val:imagenetv2").target
        'imagenetv2'
        """
        if isinstance(given, Shift):
            return given
        name, _, rest = given.partition("=") if isinstance(given, str) else ("", "", "")
        ids, _, ood = rest.partition(":")
        if not name or not ids or not ood:
            raise InputError(f"a shift is given as NAME=ID:OOD, got {given!r}")
        return Shift(name=name, kind="natural-dataset", source=tuple(ids.split("+")), target=ood)

    @staticmethod
    def from_json(found: Mapping[str, Any]) -> "Shift":
        """The shift that a store or a testbed file keeps, refused if it is none."""
        where = misfit(found, _SHIFT)
        if where is not None:
            raise InputError(f"not a record of a shift: {where!r} is missing or not what it was")
        known = {one.name for one in fields(Shift)}
        if not found.keys() <= known:
            raise unknown("key of a shift", sorted(found.keys() - known)[0], known)
        return Shift(**{**found, "source": tuple(found["source"])})

    @property
    def trained_on(self) -> str | None:
        """The training data that ``fit_on`` asks for, None if it asks for none."""
        column, _, pattern = self.fit_on.partition("=")
        return pattern if column == "training_data" else None

    def on_full_source(self) -> "Shift":
        """The same shift with the whole ID set as x instead of its class twin."""
        if self.full_source is None:
            raise InputError(f"shift {self.name!r} already uses the whole ID set as x")
        return replace(
            self,
            source=(self.full_source,),
            knee=self.full_knee,
            full_source=None,
            threshold=None,
            full_knee=None,
        )


@dataclass(frozen=True, eq=False)
class Bits:
    """Booleans (M, N) in a bit each; what is asked for by row and column is an array.

    >>> Bits.of(np.array([[True, False, True], [False, False, True]]))[:, 1:].tolist()
    [[False, True], [False, True]]
    """

    packed: NDArray[np.uint8]
    """(M, ⌈N/8⌉)"""
    columns: int

    @classmethod
    def of(cls, values: NDArray[np.bool_]) -> "Bits":
        return cls(np.packbits(values, axis=1), values.shape[1])

    @classmethod
    def nothing(cls, rows: int, columns: int) -> "Bits":
        """All of them false, to be written to (``put``)."""
        return cls(np.zeros((rows, -(-columns // 8)), dtype=np.uint8), columns)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.packed), self.columns

    def __getitem__(self, at: Any) -> NDArray[np.bool_]:
        rows, columns = at if isinstance(at, tuple) else (at, slice(None))
        if not isinstance(columns, slice):
            at = np.arange(self.columns)[columns]
            found: NDArray[np.bool_] = (self.packed[rows][..., at // 8] << (at % 8)) & 0x80 > 0
            return found
        start, stop, step = columns.indices(self.columns)
        first = start // 8
        some = self.packed[rows][..., first : -(-stop // 8)]
        bits = np.unpackbits(some, axis=-1, count=max(stop - 8 * first, 0)).view(np.bool_)
        return bits[..., start - 8 * first :: step]

    def put(self, rows: Any, values: NDArray[np.bool_]) -> None:
        self.packed[rows] = np.packbits(values, axis=-1)

    def take(self, rows: Any) -> "Bits":
        """Some of the rows."""
        return Bits(self.packed[rows], self.columns)

    def more(self, rows: int) -> "Bits":
        """With further rows of which all are false."""
        return Bits(np.pad(self.packed, ((0, rows), (0, 0))), self.columns)


@dataclass(frozen=True, kw_only=True, eq=False)
class ImageResults:
    """Which models got which images of one setting right.

    ``images`` identifies the images: settings with equal ``images`` share them, in order.
    """

    images: str
    bits: Bits
    """(models, images), in the order of the testbed's models."""
    known: NDArray[np.bool_]
    """(models,): whether the row of ``bits`` holds results."""
    pool: str | None = None
    """The images that these were taken from, where they are some of another setting's."""
    ids: NDArray[Any] | None = None
    """(images,): which image of the pool each one is."""

    @property
    def right(self) -> NDArray[np.bool_]:
        """All of them as an array; ``bits[rows]`` are those of some models."""
        return self.bits[:]
