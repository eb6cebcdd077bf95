"""What the catalogue is made of: test sets, tasks of domains, and shifts between settings."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from shiftbed.catalogue.maps import IMAGENET_CLASSES, policy_of
from shiftbed.errors import InputError, unknown
from shiftbed.labels import LabelPolicy, full, multi_label
from shiftbed.records import Perturbation, Setting


@dataclass(frozen=True, kw_only=True)
class KnownSetting:
    """A side of a shift: a test set with all its classes, or with those of another one."""

    test_set: str
    classes_of: str = ""

    def __str__(self) -> str:
        return self.test_set + (f"@{self.policy_name}" if self.classes_of else "")

    @property
    def policy_name(self) -> str:
        """What the classes are called in a setting's id."""
        return f"{self.classes_of}-classes"


@dataclass(frozen=True, kw_only=True)
class TestSetEntry:
    """A test set that has a name: what it is, how it lies on disk, how it is judged."""

    __test__ = False  # not a test, whatever pytest makes of its name

    name: str
    """As in ``NAME@DIR``: ``imagenet-a``, ``pacs/sketch``, ``imagenet-c/fog-3``."""
    title: str
    about: str
    kind: str = ""
    """Kind of the shift to it; empty for an ID set."""
    family: str
    """What it is compared with: ``imagenet``, ``cifar-10``, or its task."""
    classes: int
    images: int | None = None
    """How many there are where that is published."""
    also: tuple[int, ...] = ()
    """Other counts that are known to be right: of another release."""
    twin: KnownSetting | None = None
    """The ID setting over the same label space; None for an ID set."""
    labels: str = "own"
    """``own``; ``imagenet`` (all 1,000); ``subset``, ``superclasses`` or ``superclass-sets`` of
    ImageNet's classes by the map of that name; ``imagenet-sets`` (several labels per image)."""
    layout: str
    """Which reader opens it."""
    tree: str
    """Where what is expected, for people."""
    licence: str
    citation: str
    published: tuple[str, ...] = ()
    """TESTBED:SHIFT of lines that are published for it."""
    consistent: tuple[str, ...] = ()
    """The same for its consistency over frames."""
    per_class: int | None = None
    """Images per class, where all classes have as many."""
    digest: str | None = None
    """Start of the SHA-256 of its labels, see ``label_digest``; where it is known."""
    parts: tuple[str, ...] = ()
    """What may follow the name after a slash."""
    part: str | None = None
    split: str | None = None
    """An official split, where there is one and only that is meant."""
    base: str = ""
    """The name without part and split."""

    @property
    def policy(self) -> LabelPolicy | None:
        """How a model meets it; None for a model that has the test set's own classes."""
        if self.labels == "own":
            return None
        if self.labels == "imagenet":
            return full(IMAGENET_CLASSES)
        if self.labels == "imagenet-sets":
            return full(IMAGENET_CLASSES).then(multi_label())
        policy = policy_of(self.base)
        return policy.then(multi_label()) if self.labels == "superclass-sets" else policy

    @property
    def relabel(self) -> bool:
        """Whether its labels are ImageNet's and go through the policy, too."""
        return self.labels == "subset"

    @property
    def perturbation(self) -> Perturbation | None:
        """The corruption that its images on disk have, None for a clean set or a whole family."""
        if self.kind != "corruption" or self.part is None:
            return None
        name, _, severity = self.part.rpartition("-")
        return Perturbation(
            kind="corruption",
            name=name,
            id=f"{name}:{severity}",
            severity=int(severity),
            on_disk=True,
        )

    @property
    def setting(self) -> str:
        """The canonical id of the setting: corruptions on disk are ``ID+NAME:SEVERITY@disk``."""
        found = self.perturbation
        return self.name if found is None else Setting(test_set=self.family).perturbed(found).id

    @property
    def test_set(self) -> str:
        """The name of the test set: as the entry's, without slashes."""
        return self.name.replace("/", "-")


PARTS = ("training", "validation", "held-out")
"""Parts of any domain that has no other split: to train on, to choose by, to test on."""


@dataclass(frozen=True, kw_only=True)
class Domain:
    """One domain of a task."""

    name: str
    type: str
    """real or artificial (wenzel2022, Table S1)."""
    images: int | None = None
    folders: tuple[str, ...] = ()
    """What its directory may be called."""
    digest: str | None = None


@dataclass(frozen=True, kw_only=True)
class DomainTask:
    """Domains over one label space; a model is fitted on one and meets the others.

    >>> one = Domain(name="a", type="real", images=1)
    >>> task = DomainTask(
    ...     name="t", title="", paper="", domains=(one, Domain(name="b", type="real", images=1)),
    ...     classes=2, layout="domains", tree="", licence="", citation="",
    ... )
    >>> task.pairs, task.held_out("a", "b")
    ((('a', 'b'), ('b', 'a')), ())
    """

    name: str
    title: str
    paper: str
    """Its name in wenzel2022, Table S1; empty if it is not in there."""
    domains: tuple[Domain, ...]
    classes: int
    splits: tuple[str, ...] = ()
    """Official splits within domains."""
    predefined: bool = False
    """Whether ID and OOD are splits of one data set (WILDS)."""
    layout: str
    tree: str
    licence: str
    citation: str
    containers: tuple[str, ...] = field(default=())
    """What the directory above the domains may be called."""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """All (ID, OOD) pairs; of a WILDS task only the one that is predefined."""
        names = [domain.name for domain in self.domains]
        if self.predefined:
            return ((names[0], names[1]),)
        return tuple((a, b) for a in names for b in names if a != b)

    @property
    def datasets(self) -> int:
        """How many data sets it counts as: a WILDS pair is one."""
        return 1 if self.predefined else len(self.domains)

    def held_out(self, source: str, target: str) -> tuple[str, ...]:
        """The other OOD domains of a pair: their mean is the held-out OOD metric.

        wenzel2022, Section 3. Empty where there is none.
        """
        for name in (source, target):
            self.domain(name)
        if self.predefined:
            return ()
        return tuple(d.name for d in self.domains if d.name not in (source, target))

    def domain(self, name: str) -> Domain:
        """The domain of that name."""
        for domain in self.domains:
            if domain.name == name:
                return domain
        raise unknown(f"domain of {self.name}", name, [d.name for d in self.domains])

    def entries(self) -> Iterator[TestSetEntry]:
        """Its domains as test sets."""
        for domain in self.domains:
            yield self.entry(domain.name)

    def entry(self, name: str, split: str | None = None) -> TestSetEntry:
        """A domain, one of its official splits, or one of its ``PARTS``, as a test set.

        Of a WILDS task also ``NAME/SPLIT``: ``camelyon17/val`` is its OOD validation set.
        """
        if self.predefined and name in self.splits and split is None:
            return replace(self.entry("ood"), **_only(self, name))
        if split is not None and (self.predefined or split not in (*self.splits, *PARTS)):
            if self.predefined or not self.splits:
                also = "" if self.predefined else f", only parts: {', '.join(PARTS)}"
                raise InputError(f"{self.name} has no official splits within its domains{also}")
            raise unknown(f"split of {self.name}", split, [*self.splits, *PARTS])
        domain = self.domain(name)
        known = split is None
        return TestSetEntry(
            name=f"{self.name}/{name}" + (f"/{split}" if split else ""),
            title=f"{self.title}, {name}" + (f", {split} split" if split else ""),
            about=f"{domain.type} domain of the task {self.title}",
            kind="natural-dataset",
            family=self.name,
            classes=self.classes,
            images=domain.images if known else None,
            layout=self.layout,
            tree=self.tree,
            licence=self.licence,
            citation=self.citation,
            digest=domain.digest if known else None,
            part=name,
            split=split,
            base=self.name,
        )


def _only(task: DomainTask, split: str) -> dict[str, Any]:
    """What is different for a split of a WILDS task that is neither its ID nor its OOD set."""
    return {
        "name": f"{task.name}/{split}",
        "title": f"{task.title}, {split} split",
        "images": None,
        "part": split,
    }


@dataclass(frozen=True, kw_only=True)
class KnownShift:
    """A shift the catalogue knows: from which ID setting to which OOD one."""

    name: str
    kind: str
    task: str | None = None
    """One of wenzel2022's ten tasks; None for the others."""
    family: str
    source: KnownSetting
    target: KnownSetting
    classes: int
    images: int | None
    """Of the OOD set."""
    title: str
    types: tuple[str, str] | None = None
    """Domain types of source and target."""
    held_out: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
