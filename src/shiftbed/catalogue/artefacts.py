"""Models whose accuracy on a test set is an artefact: the set was filtered with them, or they were
trained on it. ``data/artefacts.toml`` has the facts."""

from functools import cache

from shiftbed.catalogue.identity import canonical
from shiftbed.catalogue.test_sets import read_data


def artefact(model: str, test_set: str, perturbation: str = "", trained_on: str = "") -> str | None:
    """Why that model's accuracy on a test set is an artefact; None if nothing is known.

    ``perturbation`` is the corruption that the images have; ``trained_on`` what the model's own
    record says about its training data: names of test sets, between commas.

    >>> artefact("resnet50", "imagenet-a")
    'ImageNet-A keeps only images that this ResNet-50 got wrong'
    >>> artefact("mine", "imagenet-sketch", trained_on="imagenet, imagenet-sketch")
    'trained on imagenet-sketch itself'
    >>> artefact("resnet50", "imagenet-r")
    """
    name = model.partition("@")[0].partition(" (")[0]
    wanted = _plain(test_set)
    reason = _filtered().get((wanted, name))
    if reason is not None:
        return reason
    if perturbation and name in _trained().get(perturbation, ()):
        return f"trained on {perturbation} itself"
    if wanted and wanted in {_plain(one) for one in trained_on.split(",")}:
        return f"trained on {test_set} itself"
    return None


@cache
def _filtered() -> dict[tuple[str, str], str]:
    tables = read_data("artefacts.toml")["filtered_with"]
    return {(one["test_set"], m): str(one["reason"]) for one in tables for m in one["models"]}


@cache
def _trained() -> dict[str, frozenset[str]]:
    tables = read_data("artefacts.toml")["trained_on"]
    return {perturbation: frozenset(models) for perturbation, models in tables.items()}


def _plain(name: str) -> str:
    return canonical(name.strip()) or name.strip()
