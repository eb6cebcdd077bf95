"""``Monitor``: accuracy and ρ of a network while it is trained elsewhere.

    watch = sb.Monitor([val, new], "store", "imagenet-v2", size=224, mean=…, std=…)
    for step, batch in enumerate(loader):
        …
        if step % 500 == 0:
            watch(network, step)

    trainer = lightning.Trainer(callbacks=[watch.lightning()])       # every validation epoch
    trainer = transformers.Trainer(callbacks=[watch.transformers()]) # every evaluation or epoch

Every call is a model of the store, ``NAME@STEP`` of one run, evaluated by the one engine; the same
store can be reported, ranked and drawn as a trajectory at any time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from shiftbed.display import Result, Table, against_zero, interval, percent, points, records
from shiftbed.engine.evaluate import Evaluated, evaluate
from shiftbed.engine.plan import ModelSpec
from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.results.place import place
from shiftbed.store import PredictionStore

if TYPE_CHECKING:
    from shiftbed.testbed import Testbed

Log = Callable[[Mapping[str, float], int], None]


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Monitored(Result):
    """What a monitor has seen: a row per step and setting; ρ where it is an OOD setting."""

    json_keys = "run steps=frame"
    run: str

    def answer(self) -> Iterable[str]:
        judged = self.frame.drop_nulls("effective")
        for row in records(judged.filter(pl.col("step") == pl.col("step").max())):
            ends = row["rho_low"], row["rho_high"]
            yield (
                f"Step {row['step']}, {row['setting']}: {against_zero(*ends)} "
                f"(ρ {points(row['effective'])} points, {interval(*ends)})."
            )

    def tables(self) -> Iterable[Table]:
        columns: dict[str, Any] = {
            "step": "step",
            "setting": "setting",
            "accuracy": ("value", percent),
            "n": "n",
            "ρ": ("effective", points),
            "95 % interval": lambda row: interval(row["rho_low"], row["rho_high"]),
        }
        yield Table.of(self.run, self.frame, columns, left=2, notes=self.notes)

    def plot(self, ax: Any = None) -> Any:
        """ρ over steps, with its interval; returns the axes."""
        from matplotlib import pyplot

        ax = pyplot.subplots()[1] if ax is None else ax
        judged = self.frame.filter(pl.col("effective").is_not_null())
        for (setting,), rows in judged.group_by("setting", maintain_order=True):
            steps, rho = rows["step"].to_numpy(), 100 * rows["effective"].to_numpy()
            ax.plot(steps, rho, marker="o", label=str(setting))
            low, high = rows["rho_low"].to_numpy(), rows["rho_high"].to_numpy()
            ax.fill_between(steps, 100 * low, 100 * high, alpha=0.2)
        ax.axhline(0, color="grey", linewidth=0.8)
        ax.set(xlabel="step", ylabel="effective robustness ρ (points)")
        ax.legend()
        return ax


class Monitor:
    """Evaluates a network whenever it is called, keeps the answers and says accuracy and ρ.

    ``settings`` are test sets (``TestSet``s or paths), the ID set first. ``shift`` is a shift of
    ``testbed`` whose line judges the network: the first test set stands for its ID setting, the
    second for its OOD setting, unless ``as_settings`` names them (``{"my-v2": "imagenet-v2"}``).
    Without one only accuracies are reported. ``log`` hears ``{"val": 0.76, "v2 ρ": 0.011}`` and the
    step. Further options go to ``sb.model`` (size, mean, std) and ``sb.evaluate`` (corruptions,
    attacks, batch_size). The network's training mode and the random generators stay as they are.
    """

    def __init__(
        self,
        settings: Any,
        store: "str | Path | PredictionStore | None" = None,
        shift: str | Shift | None = None,
        *,
        testbed: "str | Path | Testbed | PredictionStore" = "imagenet-testbed-2020",
        as_settings: Mapping[str, str] | None = None,
        name: str = "run",
        log: Log | None = None,
        size: int | tuple[int, int] | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        classes: int | None = None,
        **options: Any,
    ) -> None:
        from shiftbed.testbed import open_testbed

        self.name, self.log, self.options = name, log, options
        self.seen: dict[str, Any] = {"size": size, "mean": mean, "std": std, "classes": classes}
        self.test_sets = list(settings) if isinstance(settings, list | tuple) else [settings]
        self.store = store if isinstance(store, PredictionStore) else PredictionStore(store)
        self.bed = None if shift is None else open_testbed(testbed)
        self.shift = None if self.bed is None or shift is None else self.bed.shift(shift)
        self.as_settings = dict(as_settings or {})
        self.rows: list[dict[str, Any]] = []
        self.notes: dict[str, None] = {}
        self.judged: tuple[str, ...] = ()
        """What was said of ρ, at the last step."""
        if self.shift is not None and not self.as_settings and len(self.test_sets) < 2:
            raise InputError(
                f"shift {self.shift.name!r} needs an ID and an OOD test set, got one test set"
            )

    def __call__(self, module: Any, step: int) -> dict[str, float]:
        """Evaluate the network at a step; returns what ``log`` hears."""
        import torch

        from shiftbed.evaluation.models import model

        named = f"{self.name}@{step}"
        with torch.random.fork_rng(devices=[]):
            opened = model(module, name=named, **self.seen)
            info = {"run": self.name, "step": step, "in_fit_set": False, "kind": "own"}
            found = evaluate(
                [ModelSpec(source=opened, name=named, info=info)],
                self.test_sets,
                store=self.store,
                name=self.name,
                **({"backend": "torch"} | self.options),
            )
        self.notes |= dict.fromkeys(found.notes)
        rows = self._judged(found)
        self.rows += [{"step": step, **row} for row in rows]
        said = {row["setting"]: row["value"] for row in rows}
        said |= {f"{r['setting']} ρ": r["effective"] for r in rows if r["effective"] is not None}
        if self.log is not None:
            self.log(said, step)
        return said

    def _judged(self, found: Evaluated) -> list[dict[str, Any]]:
        """A row per setting with its accuracy, and ρ of those that the shift's line judges."""
        scored = {row["setting"]: row for row in records(found.frame)}
        rho: dict[str, Any] = {}
        if self.bed is not None and self.shift is not None:
            clean = [one.id for one in found.settings if one.perturbation is None]
            called = self.as_settings or dict(
                zip(clean, (*self.shift.source, self.shift.target), strict=False)
            )
            there = {called[s]: s for s in scored if s in called}
            wanted = (*self.shift.source, self.shift.target)
            missing = {name for name in wanted if name not in there}
            if missing:
                raise InputError(
                    f"no test set stands for {', '.join(sorted(missing))} of shift "
                    f"{self.shift.name!r}; as_settings says which does"
                )
            rows = {name: scored[there[name]] for name in wanted}
            right = {s: (round(row["value"] * row["n"]), row["n"]) for s, row in rows.items()}
            target = {self.shift.target: right.pop(self.shift.target)}
            placed = place(self.bed, right, target, name=found.models[0])
            self.judged = placed.notes
            rho[there[self.shift.target]] = placed.frame.row(0, named=True)
        names = {"effective": "effective", "rho_low": "low", "rho_high": "high"}
        return [
            {key: row[key] for key in ("setting", "value", "low", "high", "n")}
            | {key: rho.get(setting, {}).get(name) for key, name in names.items()}
            for setting, row in scored.items()
        ]

    @property
    def history(self) -> Monitored:
        """All that was seen so far."""
        floats = ("value", "low", "high", "effective", "rho_low", "rho_high")
        schema: dict[str, Any] = {"step": pl.Int64, "setting": pl.String, "n": pl.Int64}
        frame = pl.DataFrame(self.rows, schema=schema | dict.fromkeys(floats, pl.Float64))
        return Monitored(frame=frame, run=self.name, notes=(*self.notes, *self.judged))

    def lightning(self) -> Any:
        """A Lightning callback: called after every validation epoch, logs by ``log_dict``."""
        from shiftbed.evaluation.compat import ensure_torchvision

        ensure_torchvision()
        from lightning.pytorch.callbacks import Callback

        monitor = self

        class MonitorCallback(Callback):
            def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                if not trainer.sanity_checking:
                    said = monitor(pl_module, int(trainer.global_step))
                    pl_module.log_dict({name: float(value) for name, value in said.items()})

        return MonitorCallback()

    def transformers(self) -> Any:
        """A Transformers callback: called at every evaluation, or epoch if there is none.

        The model must give logits for a batch of pixels: its output's ``logits`` are taken.
        """
        from shiftbed.evaluation.compat import ensure_torchvision

        ensure_torchvision()
        from transformers import TrainerCallback

        monitor = self

        class MonitorCallback(TrainerCallback):
            def on_evaluate(self, args: Any, state: Any, control: Any, **given: Any) -> None:
                self._say(given["model"], state)

            def on_epoch_end(self, args: Any, state: Any, control: Any, **given: Any) -> None:
                if args.eval_strategy in ("no", None) or str(args.eval_strategy).endswith("NO"):
                    self._say(given["model"], state)

            def _say(self, model: Any, state: Any) -> None:
                said = monitor(logits_of(model), int(state.global_step))
                state.log_history.append({"step": state.global_step, **said})

        return MonitorCallback()


def logits_of(model: Any) -> Any:
    """A module of the Transformers library as one from pixels to logits."""
    import torch

    class Logits(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found = self.model(pixel_values=x)
            logits: torch.Tensor = found.logits
            return logits

    wrapped = Logits()
    wrapped.train(model.training)
    return wrapped
