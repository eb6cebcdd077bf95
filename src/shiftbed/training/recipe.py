"""``recipe.toml``: what to train, from what, how, and what to evaluate when.

name = "digits"
store = "store"                          # predictions of all checkpoints, a testbed
runs = "runs"                            # checkpoints
features = "runs/features"               # what frozen backbones make of images; sweeps may share it
threads = 1                              # of torch, per job: part of what makes runs repeatable
backend = "torch"                        # of features and evaluation, or "onnxruntime"

[data.usps]                              # sources.py: data sets, tasks, test sets, settings, shifts
path = "digits.npz:usps_train"

[[grid]]                                 # a list is a sweep; all combinations become jobs
model = ["timm:resnet10t?size=32", "nets:conv8"]
start = ["pretrained", "random"]         # or "file:WEIGHTS"
head = "new"                             # or "keep", "mapped" (class-map); default: kept if it fits
data = {name = "usps", fraction = [0.05, 1.0]}     # select.py
tune = ["whole", "head"]
objective = "cross-entropy"              # or "mse", and as below
optimiser = {name = "SGD", lr = [0.1, 0.01], momentum = 0.9}      # any of torch.optim
schedule = {name = "CosineAnnealingLR", warmup = 100}             # any of its schedules
epochs = 10                              # or steps
batch_size = 64
augmentation = ["none", "standard+randaugment"]                   # augment.py
views = 4                                # with tune = "head": augmented so often, not each epoch
checkpoints = {every = 1, unit = "epoch", at = [[0]], keep = "all"}      # "last", its "head" alone
seed = [0, 1, 2]
kind = "standard"                        # columns of models in the testbed: no part of a job's id
in_fit_set = "final"                     # "all" checkpoints, the "final" one, or "none"
backbone = "resnet50.tv_in1k"            # what timm calls the weights, for --upstream backbone

objective = {name = "augmix", weight = 12.0}       # with augmentation = "crop-flip+augmix"
objective = {name = "replay", data = "old", ratio = [1, 10]}      # old batches after each new one
objective = {name = "class-map", map = "cifar-10", pull = 0.01}   # or [[[0, 5], [1, 6]]]
objective = {name = "contrastive", width = 64, templates = [["a photo of a {}."]]}
augmentation = {name = "corruption", names = "fog", severities = 3}
prune = {method = "magnitude", scope = ["global", "layerwise"], sparsity = 0.8}
phase_out = {scores = "scores.csv", left = 5000}   # scores as ``difficulty`` writes them
switch = {scores = "scores.csv", phases = [["random:500", "hardest:500@0.5"]]}
watch = {data = "old-test"}              # accuracy on the old task at every checkpoint

[[grid.stages]]                          # instead: one after the other, each from the one before
data = "usps"
[[grid.stages]]
data = "mnist"

[[grid]]                                 # classifiers of scikit-learn: model, data, seed (and the
model = [                                # columns above), nothing else; estimators.py
  "sklearn:linear_model.LogisticRegression?C=0.05&max_iter=200&size=16",
  "sklearn:neural_network.MLPClassifier?hidden_layer_sizes=100,50&mode=L",
]
data = "usps"
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

from shiftbed.engine.toml_files import beside, errors_in, known_keys, read_toml
from shiftbed.errors import InputError, unknown
from shiftbed.foreign_code import MINE, Named, Origin
from shiftbed.training.arguments import HOOKS, JOB_KEYS, normalised, one_of, with_patterns
from shiftbed.training.estimators import is_classical, read_estimator
from shiftbed.training.naming import run_names
from shiftbed.training.sources import Sources, read_sources


def combinations(value: Any) -> Iterator[Any]:
    """Every combination of the lists within a value, at any depth, in the order they are written.

    A list is a sweep; a list in a list is a value that is a list.

    >>> list(combinations({"lr": [0.1, 0.01], "name": "SGD"}))
    [{'lr': 0.1, 'name': 'SGD'}, {'lr': 0.01, 'name': 'SGD'}]
    >>> list(combinations({"milestones": [[30, 60]]}))
    [{'milestones': [30, 60]}]
    """
    if isinstance(value, Mapping):
        keys = list(value)
        for values in product(*(list(combinations(value[key])) for key in keys)):
            yield dict(zip(keys, values, strict=True))
    elif isinstance(value, list):
        for one in value:
            if isinstance(one, list):
                yield one
            else:
                yield from combinations(one)
    else:
        yield value


def canonical(value: Any) -> str:
    """The same text for the same arguments: keys sorted, whole floats as they print."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def short_hash(value: Any) -> str:
    """Twelve hexadecimal digits of the SHA-256 of the canonical text."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:12]


_TOP: tuple[str, ...] = ("name", "store", "runs", "features", "data", "tasks", "test_sets")
_TOP += ("settings", "shifts", "grid")
_OPTIONS: dict[str, Any] = {
    "threads": 1,
    "data_workers": 0,
    "evaluation_batch_size": 256,
    "backend": "torch",
    "device": "cpu",
    "memory_gib": 2.0,
    "top": 5,
}
_COLUMNS = ("kind", "in_fit_set", "backbone")
_LABELS = ("name", "extra", *_COLUMNS, "evaluate", "stages")
FIT = ("all", "final", "none")


@dataclass(frozen=True, kw_only=True)
class Job:
    """One training run. ``arguments`` fix its weights; the rest says what it is called."""

    arguments: Mapping[str, Any]
    grid: str = ""
    stage: int = 0
    parent: str | None = None
    """Run whose last weights this one starts from."""
    evaluate: tuple[str, ...] = ()
    """Ids of settings that its checkpoints are evaluated on."""
    kind: str = "standard"
    in_fit_set: str = "final"
    backbone: str | None = None
    """What timm calls the weights it starts from, as ``find_backbone`` takes it."""
    keep: str = "all"
    """Whose weights stay on disk: "all" checkpoints' or the "last", or only the last's "head"."""
    called: str = ""
    """What people call the run: by what sets it apart in its recipe (``naming.py``)."""

    @cached_property
    def id(self) -> str:
        """A hash of the arguments: the same recipe gives the same ids, anywhere."""
        return short_hash(self.arguments)

    @property
    def classical(self) -> bool:
        """Whether it fits a model of scikit-learn."""
        return is_classical(self.arguments["model"])

    @property
    def architecture(self) -> str:
        """The model's name without prefix and options; of scikit-learn's, the class's name."""
        if self.classical:
            return read_estimator(str(self.arguments["model"])).architecture
        name = str(self.arguments["model"]).partition("?")[0].rpartition(":")[2]
        return name.removesuffix("()")

    @property
    def run(self) -> str:
        """What the run is called in the store; its checkpoints are RUN@STEP."""
        return f"{self.architecture}-{self.id}"

    @property
    def training_data(self) -> str:
        """Names of the data sets."""
        data = self.arguments["data"]
        return "+".join(data["mix"]) if "mix" in data else str(data["name"])

    @property
    def mix(self) -> str | None:
        """The shares of the data sets, if several are mixed."""
        mix = self.arguments["data"].get("mix")
        return "+".join(f"{name}={share:g}" for name, share in mix.items()) if mix else None

    @property
    def augmentation(self) -> str | None:
        """Names of its steps, None where nothing is augmented."""
        steps = self.arguments.get("augmentation", [])
        return "+".join(step["name"] for step in steps) or None

    @property
    def data_size(self) -> str:
        """How much of them: full, few-shot-10, fraction-0.05, classes-125, …"""
        data = self.arguments["data"]
        classes = data.get("classes")
        count = len(classes) if isinstance(classes, list) else classes
        found = [f"classes-{count}"] if count else []
        found += [f"fraction-{data['fraction']:g}"] if "fraction" in data else []
        found += [f"few-shot-{data['shots']}"] if "shots" in data else []
        if "difficulty" in data:
            found.append(f"{data['difficulty']['keep']}-{data['difficulty']['count']}")
        return "+".join(found) or "full"


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A sweep and its jobs. An ``extra`` one is run only when it is asked for."""

    name: str
    jobs: tuple[Job, ...]
    extra: bool = False


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Everything a recipe file says."""

    name: str
    base: str
    """Folder of the file; other files that it names are relative to it."""
    store: str
    runs: str
    features: str
    """Where features of frozen backbones are kept for all heads on them."""
    sources: Sources
    grids: tuple[Grid, ...]
    options: Mapping[str, Any] = field(default_factory=dict)
    origin: Origin = MINE
    """The file, and whether code that it names is executed."""

    def code(self, jobs: Iterable[Job]) -> list[Named]:
        """What these jobs would execute by name."""
        from shiftbed.evaluation.models.registry import code_in

        lines = dict.fromkeys(str(job.arguments["model"]) for job in jobs if not job.classical)
        found = [one for line in lines for one in code_in(line, self.origin)]
        acts = [one.perturb for one in self.sources.settings if one.perturb is not None]
        return found + [one for act in acts for one in act.code]

    def jobs(self, grids: Iterable[str] = ()) -> list[Job]:
        """The jobs of some grids (``all``, or by default those that are not extra), each once."""
        wanted = list(grids)
        known = [grid.name for grid in self.grids]
        for name in wanted:
            one_of(name, "grid", (*known, "all"))
        chosen = [
            grid
            for grid in self.grids
            if (not grid.extra if not wanted else "all" in wanted or grid.name in wanted)
        ]
        found: dict[str, Job] = {}
        for grid in chosen:
            for job in grid.jobs:
                found.setdefault(job.id, job)
        return list(found.values())


def read_recipe(path: str | Path, *, allow_code: bool = False) -> Recipe:
    """Read a recipe; relative paths are relative to it.

    Nothing is executed here; ``allow_code`` allows training to execute what the file names as
    ``python:``.
    """
    path = Path(path)
    table = read_toml(path, (*_TOP, *_OPTIONS))
    base = path.parent
    origin = Origin(file=str(path), allow_code=allow_code)
    with errors_in(path):
        sources = read_sources(table, base, origin)
        runs = beside(str(table.get("runs", "runs")), base)
        return Recipe(
            name=str(table.get("name", path.stem)),
            base=str(base),
            store=beside(str(table.get("store", "store")), base),
            runs=runs,
            features=beside(str(table["features"]), base)
            if "features" in table
            else str(Path(runs) / "features"),
            sources=sources,
            grids=_named(tuple(_grids(table.get("grid"), sources))),
            options=_options(table),
            origin=origin,
        )


def _options(table: Mapping[str, Any]) -> dict[str, Any]:
    found = _OPTIONS | {key: table[key] for key in _OPTIONS if key in table}
    one_of(found["backend"], "backend", ("torch", "onnxruntime"))
    for key, default in _OPTIONS.items():
        value = found[key]
        kinds = (int, float) if isinstance(default, float) else type(default)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise InputError(f"{key} must be a {type(default).__name__}, got {value!r}")
        if not isinstance(value, str) and value < (0 if key == "data_workers" else 1e-9):
            raise InputError(f"{key} must be positive, got {value!r}")
    return found


def _grids(value: Any, sources: Sources) -> Iterator[Grid]:
    tables = [value] if isinstance(value, dict) else value
    if not isinstance(tables, list) or not tables or not all(isinstance(t, dict) for t in tables):
        raise InputError("expected at least one [[grid]] table")
    names: list[str] = []
    for number, table in enumerate(tables, 1):
        name = str(table.get("name", f"grid-{number}"))
        if name in (*names, "all"):
            raise InputError(f"grid {name!r} is there twice, or is called 'all'")
        names.append(name)
        try:
            jobs = tuple(_jobs(name, table, sources))
        except InputError as error:
            raise InputError(f"grid {name!r}: {error}") from None
        extra = table.get("extra", False)
        if not isinstance(extra, bool):
            raise InputError(f"extra must be true or false, got {extra!r}")
        yield Grid(name=name, jobs=jobs, extra=extra)


def _named(grids: tuple[Grid, ...]) -> tuple[Grid, ...]:
    """The same with names that people can read."""
    names = run_names(list({job.id: job for grid in grids for job in grid.jobs}.values()))
    return tuple(
        replace(grid, jobs=tuple(replace(job, called=names[job.id]) for job in grid.jobs))
        for grid in grids
    )


def _jobs(name: str, table: Mapping[str, Any], sources: Sources) -> Iterator[Job]:
    """All combinations, chained over stages: a run of an earlier stage is shared by later ones."""
    known_keys(table, (*_LABELS, *JOB_KEYS, *HOOKS), "[[grid]]")
    labels = {key: table[key] for key in _COLUMNS if key in table}
    if "backbone" in labels:
        from shiftbed.results.pairs.added import find_backbone

        find_backbone(str(labels["backbone"]))
    if labels.get("in_fit_set", "final") not in FIT:
        raise unknown("in_fit_set", str(labels["in_fit_set"]), FIT)
    common = {key: value for key, value in table.items() if key not in _LABELS}
    stages = table.get("stages", [{}])
    before: list[Job | None] = [None]
    seen: set[str] = set()
    for depth, stage in enumerate(stages):
        known_keys(stage, (*JOB_KEYS, *HOOKS), "[[grid.stages]]")
        swept = common | stage
        if "data" in swept:
            swept["data"] = with_patterns(swept["data"], sources.data)
        after: list[Job | None] = []
        for arguments in combinations(swept):
            for earlier in before:
                made = _job(arguments, earlier, sources, table.get("evaluate"))
                job = replace(made, grid=name, stage=depth, **labels)
                if job.id not in seen:
                    seen.add(job.id)
                    after.append(job)
                    yield job
        before = after


def _job(arguments: Mapping[str, Any], earlier: Job | None, sources: Sources, evaluate: Any) -> Job:
    given = dict(arguments)
    if earlier is not None:
        given.setdefault("model", earlier.arguments["model"])
        for model in (earlier.arguments["model"], given["model"]):
            if is_classical(model):
                raise InputError(f"stages do not go with {model}: it is fitted once, from nothing")
        given["start"] = f"run:{earlier.id}"
    found = normalised(given, sources.data)
    keep = found["checkpoints"].pop("keep") if "checkpoints" in found else "all"
    if keep == "head" and found["tune"] != "head":
        raise InputError("checkpoints keep = 'head' goes with tune = 'head': the rest is trained")
    return Job(
        arguments=found,
        parent=None if earlier is None else earlier.run,
        evaluate=_evaluated(found["data"], sources, evaluate),
        keep=keep,
    )


def _evaluated(data: Mapping[str, Any], sources: Sources, wanted: Any) -> tuple[str, ...]:
    """The settings asked for; else those of the data in its task; else all of no task."""
    if wanted is not None:
        known = {one.id for one in sources.settings}
        names = [wanted] if isinstance(wanted, str) else list(wanted)
        for name in names:
            one_of(name, "setting in evaluate", known)
        return tuple(names)
    names = list(data["mix"]) if "mix" in data else [data["name"]]
    each = [sources.of_data.get(name, sources.of_data[""]) for name in names]
    return tuple(dict.fromkeys(one for some in each for one in some))
