"""One value alone where a public function takes several: the same as a list of it."""

import inspect
import pickle
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import shiftbed as sb
from shiftbed.one_or_several import takes_one_for_several

FUNCTIONS = [name for name in sb.__all__ if inspect.isfunction(getattr(sb, name))]
BED = "imagenet-testbed-2020"


def test_annotations_say_what_one_is():
    def function(
        names: Sequence[str] | None = None,
        sizes: Iterable[int] = (),
        places: Collection[str | Path] = (),
        both: str | Sequence[str] = "",
        mean: float | Sequence[float] = 0.0,
        holes: Sequence[str | None] = (),
    ) -> tuple[object, ...]:
        return names, sizes, places, both, mean, holes

    edge = takes_one_for_several(function)
    assert edge("a", 3, Path("x"), "whole", 0.5, "h") == (
        *(("a",), (3,), (Path("x"),), "whole", 0.5, ("h",)),
    )
    assert edge(["a"], [3], holes=None) == (["a"], [3], (), "", 0.0, None)
    assert edge() == function()
    with pytest.raises(TypeError, match="unexpected keyword argument 'nothing'"):
        edge(nothing=1)


def test_functions_without_lists_stay_themselves():
    def function(name: str) -> str:
        return name

    assert takes_one_for_several(function) is function


@pytest.mark.parametrize("name", FUNCTIONS)
def test_public_functions_keep_name_help_and_signature(name):
    function = getattr(sb, name)
    raw = inspect.unwrap(function)
    assert function.__name__ == name
    assert function.__doc__ == raw.__doc__
    assert inspect.signature(function) == inspect.signature(raw)
    assert pickle.loads(pickle.dumps(function)) is function


V2 = "imagenetv2-matched-frequency-format-val"
CALLS = [
    (sb.groups, {}, {"shift": "imagenet-v2"}),
    (sb.groups, {"id": ["val", "val-on-imagenet-r-classes"]}, {"ood": V2}),
    (sb.correlate, {}, {"synthetic": "avg_corruptions", "natural": "imagenet-v2"}),
    (sb.rank, {"shift": "imagenet-v2"}, {"others": Path("more.csv")}),
    (sb.fit, {"ood": V2}, {"id": "val"}),
]


@pytest.mark.parametrize(("function", "given", "one"), CALLS)
def test_one_is_a_list_of_one(function, given, one, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pl.DataFrame({"model": ["m"], "imagenet": [0.76], "imagenetv2": [0.63]}).write_csv("more.csv")
    alone = function(BED, **given, **one)
    listed = function(BED, **given, **{key: [value] for key, value in one.items()})
    assert alone.to_json() == listed.to_json()
    assert len(alone.frame)


def test_a_shift_from_one_name():
    made = sb.Shift(name="s", kind="natural-dataset", source="val", target="new")
    assert made.source == ("val",)
    listed = sb.Shift(name="s", kind="natural-dataset", source=["val"], target="new")
    assert made == listed
    assert hash(made) == hash(listed)


def test_one_corruption_and_one_metric():
    images = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)
    tiny = sb.TestSet(images, [0, 1] * 3, name="tiny")
    net = sb.model(
        lambda x: np.stack([x.mean((1, 2, 3)), np.full(len(x), 0.5)], 1),
        **{"name": "m", "size": 8, "mean": (0.0,) * 3, "std": (1.0,) * 3, "classes": 2},
    )
    for one in ("contrast:3", sb.Corruption("contrast", 3)):
        found = sb.evaluate(net, tiny, corruptions=one, metrics="top1")
        assert found.frame["setting"].to_list() == ["tiny", "tiny+contrast:3"]
    assert sb.score(found.store, metrics="nll").frame["metric"].unique().to_list() == ["nll"]
