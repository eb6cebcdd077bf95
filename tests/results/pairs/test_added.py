"""Held-out OOD is the mean over the other OOD sets; upstream errors are those of the timm table."""

from pathlib import Path

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.analysis.pairs import PairTable
from shiftbed.errors import InputError
from shiftbed.results.pairs import held_out, notes_of
from shiftbed.results.pairs.added import UPSTREAM, find_backbone, with_upstream

ROOT = Path(__file__).parents[3]


def pair(target, values, models=("a", "b"), task="t", source="s", metrics=("ood:error",)):
    table = np.asarray(values, dtype=float).reshape(len(models), len(metrics))
    named = {"task": task, "source": source, "target": target, "models": tuple(models)}
    return PairTable(**named, metrics=tuple(metrics), values=table)


def test_the_mean_is_over_the_others_of_the_same_task_and_id_set():
    found = held_out(
        [
            pair("x", [0.1, 0.2]),
            pair("y", [0.3, 0.4]),
            pair("z", [0.5, 0.8]),
            pair("y", [0.9, 0.9], source="other"),
            pair("y", [0.9, 0.9], task="other"),
        ]
    )
    assert np.allclose(found[0].column("held-out:error"), [0.4, 0.6])
    assert np.allclose(found[2].column("held-out:error"), [0.2, 0.3])
    assert found[3].metrics == found[4].metrics == ("ood:error",)


def test_networks_in_another_order_and_missing_ones():
    found = held_out([pair("x", [0.1, 0.2]), pair("y", [0.3], models=("b",))])
    column = found[0].column("held-out:error")
    assert np.isnan(column[0])
    assert column[1] == 0.3


def test_several_metrics_and_one_that_is_there_already():
    metrics = ("ood:error", "ood:nll", "held-out:nll")
    one = pair("x", [[0.1, 1.0, 7.0], [0.2, 2.0, 8.0]], metrics=metrics)
    other = pair("y", [[0.3, 3.0], [0.4, 4.0]], metrics=metrics[:2])
    found = held_out([one, other])
    assert found[0].column("held-out:nll").tolist() == [7.0, 8.0]
    assert found[0].column("held-out:error").tolist() == [0.3, 0.4]
    assert found[1].column("held-out:nll").tolist() == [1.0, 2.0]


def test_what_is_missing_is_said():
    values = np.array([0.1, np.nan])
    notes = notes_of(
        held_out([pair("x", values), pair("y", [0.1, 0.2]), pair("z", [1, 2], task="u")])
    )
    assert notes[0].startswith("2 of 10 cells are missing")
    assert "1 of 3 pairs (u)" in notes[1]
    whole = notes_of(held_out([pair("x", [0.1, 0.2]), pair("y", [0.1, 0.2])]))
    assert whole == ["2 networks in each of 2 pairs."]


@pytest.fixture(scope="module")
def timm():
    return sb.published("timm")


def with_backbones(backbones):
    return PairTable(
        task="t",
        source="a",
        target="b",
        models=tuple(f"m{i}" for i in range(len(backbones))),
        metrics=("ood:error",),
        values=np.full((len(backbones), 1), 0.5),
        info={"backbone": backbones},
    )


@pytest.mark.parametrize(
    "name",
    [
        "vit_base_patch16_224.augreg_in1k",
        "timm:vit_base_patch16_224.augreg_in1k",
        "vit_base_patch16_224.augreg_in1k@224-0.9",
    ],
)
def test_the_full_name_with_its_tag_is_found(timm, name):
    row = find_backbone(name)
    assert timm.model_names[row] == "vit_base_patch16_224.augreg_in1k@224-0.9"


def test_an_ambiguous_bare_name_is_refused_with_candidates():
    with pytest.raises(InputError, match="is ambiguous") as error:
        find_backbone("vit_base_patch16_224")
    assert "vit_base_patch16_224.augreg_in1k" in str(error.value)
    assert "vit_base_patch16_224.sam_in1k" in str(error.value)


def test_weights_at_several_sizes_are_meant_at_their_own(timm):
    """timm itself says which size its weights have, of all that the table has several times."""
    pytest.importorskip("torch")
    from shiftbed.evaluation.compat import ensure_torchvision

    ensure_torchvision()
    config = pytest.importorskip("timm.models").get_pretrained_cfg
    names = timm.models["name"]
    several = names.filter(names.is_duplicated()).unique()
    assert len(several) == 290
    for name in several:
        assert timm.models["img_size"][find_backbone(name)] == config(name).input_size[1]


def test_networks_of_the_papers_recipe_have_the_papers_backbones(timm):
    """The architecture of a job, a column of the store, is enough: nine backbones, each found."""
    from shiftbed.papers.wenzel2022 import BACKBONES
    from shiftbed.training import read_recipe

    recipe = read_recipe(ROOT / "recipes" / "wenzel2022.toml")
    names = list(dict.fromkeys(job.architecture for job in recipe.jobs()))
    found = {timm.model_names[find_backbone(name)] for name in names}
    assert {name.partition("@")[0] for name in found} == {b.partition("@")[0] for b in BACKBONES}
    (joined,) = with_upstream([with_backbones(names)], "backbone")
    assert np.isfinite(joined.column("upstream:imagenet")).all()
    assert len(set(joined.column("upstream:v2"))) == 9


def test_a_misspelt_name_has_a_suggestion():
    with pytest.raises(InputError, match="did you mean"):
        find_backbone("resnet50.tv_in1kk")


def test_errors_of_all_six_sets_are_joined(timm):
    names = ["resnet50.tv_in1k", None, "vit_base_patch16_224.augreg_in1k"]
    (found,) = with_upstream([with_backbones(names)], "backbone")
    assert found.metrics == ("ood:error", *(f"upstream:{name}" for name in UPSTREAM))
    row = timm.model_names.index("resnet50.tv_in1k@224-0.875")
    for name, setting in UPSTREAM.items():
        column = found.column(f"upstream:{name}")
        assert column[0] == pytest.approx(1 - timm.accuracy(setting)[row], nan_ok=True)
        assert np.isnan(column[1])
        assert np.isfinite(column[2])
    assert found.column("upstream:imagenet")[0] == pytest.approx(1 - 0.7613, abs=2e-3)


def test_the_column_must_be_there():
    with pytest.raises(InputError, match="did you mean 'backbone'"):
        with_upstream([with_backbones(["resnet50.tv_in1k"])], "backbones")
