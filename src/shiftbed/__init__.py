"""shiftbed: is an image classifier robust to distribution shift, or merely accurate?

>>> import shiftbed as sb
>>> bed = sb.published("imagenet-testbed-2020")
>>> line = bed.fit("imagenet-v2")
>>> line.n, round(line.weights[0], 4), round(line.intercept, 4), round(line.r2, 4)
(78, 0.9217, -0.4947, 0.9965)

A function per command, under the command's name; it takes objects or what the command takes and
returns a result that knows its table (``print``), its frame, its JSON and its chart (``plot``).
Everything is loaded when it is first used: ``import shiftbed`` needs no deep-learning framework.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "analysis.baseline": ("Baseline", "fit_baseline"),
    "analysis.intervals": ("clopper_pearson",),
    "analysis.robustness": ("Robustness", "effective_robustness"),
    "captioning.build": ("captions",),
    "display": ("Result",),
    "engine.check": ("check",),
    "engine.evaluate": ("evaluate", "run"),
    "engine.monitor": ("Monitor",),
    "engine.probe": ("probe",),
    "errors": ("InputError",),
    "evaluation": ("attacks",),
    "evaluation.corrupt_tree": ("corrupt",),
    "evaluation.corruptions": ("Corruption",),
    "evaluation.data": ("TestSet",),
    "evaluation.models": ("model",),
    "importing.results": ("import_results",),
    "page.card": ("card",),
    "page.plot": ("plot",),
    "page.report": ("report",),
    "page.serve": ("serve",),
    "papers": ("reproduce",),
    "records": ("Perturbation", "Setting", "Shift"),
    "results.catalogue": ("check_data", "shifts"),
    "results.consistency": ("consistency",),
    "results.correlation": ("correlate",),
    "results.corruption_error": ("mce",),
    "results.effects": ("effects",),
    "results.factors": ("factors",),
    "results.groups": ("groups",),
    "results.estimate": ("estimate",),
    "results.lines": ("fit",),
    "results.mix": ("mix",),
    "results.patterns": ("patterns",),
    "results.place": ("place",),
    "results.plan": ("plan",),
    "results.predictiveness": ("predictiveness",),
    "results.predictors": ("predictors",),
    "results.ranking": ("compare", "rank"),
    "results.scores": ("score",),
    "results.similarity": ("similarity",),
    "results.testbeds": ("testbeds",),
    "results.transfer": ("transfer",),
    "scales": ("LINEAR", "LOGIT", "PROBIT"),
    "store": ("PredictionStore",),
    "testbed": ("Testbed", "open_testbed", "published", "read_testbed", "write_testbed"),
    "training.difficulty": ("difficulty",),
    "training.linear_probe": ("linear_probe",),
    "training.train": ("train",),
    "training.weight_space": ("interpolate", "soup"),
}
_MODULE = {name: module for module, names in _HOME.items() for name in names}
__all__ = [*sorted(_MODULE)]  # noqa: PLE0604
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name not in _MODULE:
        raise AttributeError(f"module 'shiftbed' has no attribute {name!r}")
    if name == "attacks":
        return import_module("shiftbed.evaluation.attacks")
    found = getattr(import_module(f"shiftbed.{_MODULE[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
