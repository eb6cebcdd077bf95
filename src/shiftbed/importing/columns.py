"""Which column is what: guessed from the names that people use, unless the caller says it.

A name counts whatever its case and its separators are: ``Top-1``, ``top_1`` and ``top 1`` are one.
A column from inside an object (``metadata.lr``) is also known by its last part.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from shiftbed.catalogue import canonical
from shiftbed.errors import InputError, shown, unknown
from shiftbed.reading.tables import TextTable

ROLES: Mapping[str, tuple[str, ...]] = {
    "model": (
        *("model", "model_fullname", "full_name", "fullname", "model_name", "modelname"),
        *("model_id", "name", "estimator", "classifier", "network", "net", "arch", "architecture"),
        *("checkpoint", "ckpt", "backbone", "method", "algorithm", "system", "approach"),
    ),
    "setting": (
        *("setting", "dataset", "data_set", "dataset_name", "test_set", "testset", "test_dataset"),
        *("eval_set", "eval_dataset", "evalset", "benchmark", "task", "distribution", "shift"),
        *("split", "domain", "domain_split", "subset", "environment", "corruption", "severity"),
    ),
    "value": (
        *("value", "accuracy", "acc1", "top1", "acc_1", "top_1", "acc", "top1_acc", "top_1_acc"),
        *("top1_accuracy", "top_1_accuracy", "test_accuracy", "test_acc", "val_accuracy"),
        *("eval_accuracy", "eval_acc", "score", "result", "metric_value"),
    ),
    "correct": ("correct", "num_correct", "n_correct"),
    "n": (
        *("n", "num_examples", "n_examples", "num_samples", "n_samples", "num_images", "n_images"),
        *("n_test", "num_test", "test_size", "test_num_samples", "images", "examples", "support"),
        *("total", "count", "size"),
    ),
    "low": (
        *("low", "ci_low", "lower", "ci_lower", "lower_ci", "low_ci", "lo", "ci_lo", "lower_bound"),
        *("conf_low", "ci95_low", "ci_95_low", "ci95_lower", "lcb"),
    ),
    "high": (
        *("high", "ci_high", "upper", "ci_upper", "upper_ci", "high_ci", "hi", "ci_hi"),
        *("upper_bound", "conf_high", "ci95_high", "ci_95_high", "ci95_upper", "ucb"),
    ),
    "interval": ("interval", "ci", "ci95", "ci_95", "conf", "confidence_interval", "conf_int"),
    "metric": ("metric", "metric_name", "measure"),
    "run": ("run", "run_id", "run_name", "experiment", "exp", "exp_name", "trajectory"),
    "step": (
        *("step", "global_step", "train_step", "training_step", "ckpt_step", "iteration", "iter"),
        *("epoch", "samples_seen"),
    ),
    "kind": ("kind", "type"),
    "in_fit_set": ("in_fit_set",),
    "parent": ("parent",),
}
"""What a column may be, and its usual names, the likelier ones first."""
TAGS = ("pretrained", "weights", "tag", "variant", "config", "version", "seed", "trial", "fold")
"""What may tell models of one name apart."""
_METADATA = re.compile(
    r"(?:^|_)(?:lr|learning_rate|epochs?|steps?|iter(?:ation)?s?|seed|trial|fold|params?(?:_[mb])?"
    r"|param_count|parameters|g?flops(?:_[bg])?|g?macs|size|res|resolution|crop(?:_pct)?|batch|bs"
    r"|weight_decay|wd|decay|momentum|dropout|drop_path|drop_rate|smoothing|temperature|temp|alpha"
    r"|beta|gamma|eps|epsilon|sparsity|depth|width|layers?|heads|dim|year|date|rank|time|seconds"
    r"|hours|runtime|latency|throughput|speed|gpu_memory|peak_memory|gpus?|samples_seen|classes|index|warmup"
    r"|mixup|cutmix|version|lambda|magnitude|train_images|n_train|num_train|unnamed_0)$"
)
_METRICS = re.compile(
    r"(?:^|_)(?:loss|nll|ece|brier|mce|auc|auroc|map|f1|precision|recall|acc_?5|top_?5(?:_acc)?"
    r"|err(?:or)?|err_?[15]|std|stderr|sem|variance|diff|kappa|mse|mae|rmse|perplexity|ppl)$"
)


def plain(name: str) -> str:
    """A column's name as it is compared.

    >>> plain("Top-1 "), plain("params (M)")
    ('top_1', 'params_m')
    """
    return re.sub(r"[^0-9a-z]+", "_", name.lower()).strip("_")


def leaf(table: TextTable, column: str) -> str:
    """The name of a column as it is compared, of one from inside an object its last part."""
    return plain(column.rpartition(".")[2] if column in table.nested else column)


def is_metadata(table: TextTable, column: str) -> bool:
    """Whether a column of numbers describes the model by its name (``lr``, ``params (M)``)."""
    return bool(_METADATA.search(leaf(table, column))) and not is_setting(column)


def is_other_metric(table: TextTable, column: str) -> bool:
    """Whether a column measures something else than top-1 accuracy by its name (``acc5``)."""
    return bool(_METRICS.search(leaf(table, column))) and not is_setting(column)


def is_setting(name: str) -> bool:
    """Whether a test set is known by that name."""
    return canonical(name) is not None


def shorter(name: str) -> str:
    """The name of a setting without what it measures or a folder of web datasets, where a test set
    is known by that name only.

    >>> shorter("imagenet_acc1"), shorter("ImageNet (%)"), shorter("mine_acc1")
    ('imagenet', 'ImageNet', 'mine_acc1')
    """
    if is_setting(name):
        return name
    values = "|".join(one.replace("_", "[ _-]?") for one in ROLES["value"])
    short = re.sub(r" *[(\[]?%[)\]]?$", "", name.removeprefix("wds/"))
    short = re.sub(rf"[ _.:/-]+(?:{values})$", "", short, flags=re.IGNORECASE)
    return short if is_setting(short) else name


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What the caller says of columns: their roles, which describe models, which are settings."""

    said: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    info: Collection[str] = ()
    settings: Collection[str] = ()

    @classmethod
    def of(
        cls, said: Mapping[str, str | Collection[str]], info: Collection[str], settings: set[str]
    ) -> "Columns":
        """The roles checked; columns are checked when all tables are known."""
        for role in said:
            if role not in ROLES:
                raise unknown("role of a column", role, ROLES)
        listed = {role: (c,) if isinstance(c, str) else tuple(c) for role, c in said.items()}
        for role, some in listed.items():
            if len(some) > 1 and role != "setting":
                raise InputError(f"columns (--column): {role} is one column, got {len(some)}")
        return cls(said=listed, info=info, settings=settings)

    def told(self, table: TextTable, role: str) -> list[str]:
        """The columns of a table that the caller gives a role."""
        return [c for c in self.said.get(role, ()) if c in table.frame.columns]

    def every(self, table: TextTable, role: str) -> list[str]:
        """The columns that may have a role, the likeliest first; those that are said, if any is."""
        return self.told(table, role) or list(self._guessed(table, role))

    def find(self, table: TextTable, role: str) -> str | None:
        """The likeliest column of a role."""
        return next(iter(self.every(table, role)), None)

    def need(self, table: TextTable, role: str) -> str:
        """The same, refused where there is none."""
        found = self.find(table, role)
        if found is None:
            columns = ", ".join(shown(c) for c in table.frame.columns[:8])
            more = ", …" if table.frame.width > 8 else ""
            raise InputError(
                f"{table.path}: there is no column {role!r}, nor one of its usual names, only "
                f"{columns}{more}; say which it is with columns={{{role!r}: …}} "
                f"(--column {role}=COLUMN)"
            )
        return found

    def _guessed(self, table: TextTable, role: str) -> Iterator[str]:
        taken = {one for some in self.said.values() for one in some} | set(self.info)
        free = [c for c in table.frame.columns if c not in taken]
        by_name: dict[str, list[str]] = {}
        by_leaf: dict[str, list[str]] = {}
        for column in free:
            by_name.setdefault(plain(column), []).append(column)
            if column in table.nested:
                by_leaf.setdefault(leaf(table, column), []).append(column)
        for name in ROLES[role]:
            same = by_name.get(name, [])
            if len(same) > 1:
                both = " and ".join(shown(c) for c in same[:2])
                raise InputError(f"{table.path}: columns {both} could both be the {role}")
            yield from same
        for name in ROLES[role]:
            same = [c for c in by_leaf.get(name, []) if plain(c) not in ROLES[role]]
            if len(same) == 1:
                yield same[0]


def beside(table: TextTable, settings: Collection[str]) -> dict[str, dict[str, str]]:
    """Columns of a wide table that belong to one of its settings, by role and setting.

    They are called ROLE:SETTING or SETTING_ROLE, with any separator, as in ``n:val``, ``val_low``;
    beside ``val.acc1`` or ``val_acc1`` also ``val.n``.
    """
    values = "|".join(sorted(ROLES["value"], key=len, reverse=True))
    bases = {plain(one): one for one in settings}
    for one in settings:
        short = re.sub(rf"_(?:{values})$", "", plain(one))
        bases.setdefault(short, one)
    found: dict[str, dict[str, str]] = {}
    for role in ("n", "low", "high", "interval"):
        names = "|".join(sorted(ROLES[role], key=len, reverse=True))
        forms = (rf"^(?P<base>.+?)_(?:{names})$", rf"^(?:{names})_(?P<base>.+)$")
        for column in table.frame.columns:
            if column in settings and is_setting(column):
                continue
            for form in forms:
                match = re.match(form, plain(column))
                base = bases.get(match["base"]) if match else None
                if base is not None and base != column:
                    found.setdefault(role, {}).setdefault(base, column)
                    break
    return found
