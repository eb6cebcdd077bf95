"""Test sets and tasks of domains, as ``data/test_sets.toml`` and ``data/tasks.toml`` have them."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

from shiftbed.catalogue.entries import Domain, DomainTask, KnownSetting, TestSetEntry

CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise"),
    *("gaussian_blur", "defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    *("snow", "frost", "fog", "spatter", "brightness", "contrast", "saturate"),
    *("pixelate", "jpeg_compression", "elastic_transform"),
)
"""The 19 corruptions that are released on disk, for ImageNet and for CIFAR-10."""
SEVERITIES = 5
CIFAR_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


@cache
def known_test_sets() -> dict[str, TestSetEntry]:
    """Test sets over ImageNet's classes and over CIFAR-10's, by name."""
    read = read_data("test_sets.toml")
    found = {}
    for table in read["test_sets"]:
        fields = read["of"][table.get("family", "imagenet")] | table
        if fields.get("parts") == "corruptions":
            severities = range(1, SEVERITIES + 1)
            fields["parts"] = [f"{name}-{at}" for name in CORRUPTIONS for at in severities]
        twin = fields["twin"]
        fields["twin"] = KnownSetting(**twin if isinstance(twin, dict) else {"test_set": twin})
        fields |= {"base": fields["name"], "twin": fields["twin"] if twin else None}
        found[fields["name"]] = TestSetEntry(**_tuples(fields))
    return found


@cache
def known_tasks() -> dict[str, DomainTask]:
    """wenzel2022's ten tasks in the order of Table S1, and the digits, by name."""
    found = {}
    for table in read_data("tasks.toml")["tasks"]:
        domains = [Domain(**_tuples({"folders": [d["name"]]} | d)) for d in table["domains"]]
        found[table["name"]] = DomainTask(**_tuples(table | {"domains": domains}))
    return found


def read_data(name: str) -> dict[str, Any]:
    """A TOML file of the catalogue's data."""
    return tomllib.loads((files("shiftbed") / "catalogue" / "data" / name).read_text("utf-8"))


def _tuples(table: dict[str, Any]) -> dict[str, Any]:
    return {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}
