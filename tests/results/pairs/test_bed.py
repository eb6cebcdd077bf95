import numpy as np
import pytest

import shiftbed as sb
from shiftbed.errors import InputError
from shiftbed.results.pairs import open_pairs, pairs_from_testbed
from shiftbed.testbed import write_testbed


def test_natural_shifts_are_pairs_and_perturbations_are_columns(imagenet):
    pairs = pairs_from_testbed(imagenet)
    natural = [s for s in imagenet.shifts if s.kind not in ("corruption", "adversarial")]
    assert [(p.source, p.target) for p in pairs] == [(s.source[0], s.target) for s in natural]
    v2 = pairs[0]
    rows = [imagenet.model_names.index(m) for m in v2.models]
    for metric, setting in [
        ("id:error", "val"),
        ("ood:error", "imagenetv2-matched-frequency-format-val"),
        ("corrupted:error", "avg_corruptions"),
        ("id:adversarial", "avg_pgd"),
    ]:
        expected = 1 - imagenet.accuracy(setting)[rows]
        assert np.allclose(v2.column(metric), expected, equal_nan=True)
    assert v2.info["model_kind"][0] == "more-data"


def test_a_class_twin_has_the_corruptions_and_the_held_out_of_the_whole_set(imagenet):
    pairs = {p.target: p for p in pairs_from_testbed(imagenet)}
    objectnet = pairs["objectnet-1.0-beta"]
    assert objectnet.source == "val-on-objectnet-classes"
    i = objectnet.models.index("resnet50")
    row = imagenet.model_index("resnet50")
    assert objectnet.column("corrupted:error")[i] == pytest.approx(
        1 - imagenet.accuracy("avg_corruptions")[row]
    )
    family = [
        s.target
        for s in imagenet.shifts
        if (s.full_source or s.source[0]) == "val"
        and s.kind not in ("corruption", "adversarial")
        and s.target != "objectnet-1.0-beta"
    ]
    expected = 1 - np.mean([imagenet.accuracy(t)[row] for t in family])
    assert objectnet.column("held-out:error")[i] == pytest.approx(expected)
    assert "held-out:error" not in pairs["imagenet-vid-robust_pm10"].metrics


def test_without_a_mean_of_its_own_the_corruptions_are_averaged():
    bed = sb.published("robustnets-2022")
    (pair,) = open_pairs("robustnets-2022")
    rows = [bed.model_names.index(m) for m in pair.models]
    assert np.allclose(pair.column("corrupted:error"), 1 - bed.accuracy("cifar10c_acc")[rows])
    assert "held-out:error" not in pair.metrics
    assert set(pair.info["augmentation"]) == {"augmix", "clean", "gaussian"}


def test_further_settings_and_kinds():
    (pair,) = open_pairs("robustnets-2022", also=["jacobian_norm"])
    assert pair.column("id:jacobian_norm").max() > 1
    pairs = open_pairs("robustnets-2022", kind=["corruption"])
    assert len(pairs) == 16
    assert {p.kind for p in pairs} == {"corruption"}
    with pytest.raises(InputError, match="did you mean 'corruption'"):
        open_pairs("robustnets-2022", kind=["corruptions"])
    with pytest.raises(InputError, match="no shift with one ID setting of that kind"):
        open_pairs("timm", kind=["consistency"])


def test_a_testbed_file_is_told_from_a_plain_one(tmp_path):
    path = tmp_path / "bed.parquet"
    write_testbed(sb.published("openclip"), path)
    assert [p.name for p in open_pairs(str(path))] == [p.name for p in open_pairs("openclip")]


@pytest.mark.parametrize(
    ("source", "match"),
    [
        ("imagenet-testbed-2021", "'imagenet-testbed-2020'"),
        ("nowhere.csv", "no such file or store"),
        ("nowhere/else", "no such file or store"),
    ],
)
def test_sources_that_are_not_there(source, match):
    with pytest.raises(InputError, match=match):
        open_pairs(source)
