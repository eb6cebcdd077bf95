import numpy as np
import pytest

import shiftbed as sb
from shiftbed.analysis.pairs import PairTable
from shiftbed.errors import InputError
from shiftbed.results.upstream import UPSTREAM, find_backbone, with_upstream


@pytest.fixture(scope="module")
def timm():
    return sb.published("timm")


def pair(backbones):
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


def test_a_name_with_several_image_sizes_is_refused_too(timm):
    names = timm.models["name"]
    twice = names.filter(names.is_duplicated())
    assert len(twice)
    with pytest.raises(InputError, match="is ambiguous"):
        find_backbone(twice[0])


def test_a_misspelt_name_has_a_suggestion():
    with pytest.raises(InputError, match="did you mean"):
        find_backbone("resnet50.tv_in1kk")


def test_errors_of_all_six_sets_are_joined(timm):
    names = ["resnet50.tv_in1k", None, "vit_base_patch16_224.augreg_in1k"]
    (found,) = with_upstream([pair(names)], "backbone")
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
        with_upstream([pair(["resnet50.tv_in1k"])], "backbones")
    with pytest.raises(InputError, match="not a table of backbones"):
        find_backbone("resnet50", sb.published("imagenet-testbed-2020"))
