"""The simulated study of ``benchmarks.pairs`` has the paper's four factors, and every analysis."""

import numpy as np

import shiftbed as sb
from benchmarks import pairs


def test_the_study_is_as_large_as_it_says():
    study = pairs.simulated()
    assert len(study) == pairs.PAIRS
    assert {pair.values.shape for pair in study} == {(300, 20)}
    assert len({pair.source for pair in study}) == 4
    assert len(pairs.simulated(10, 24)) == 24


def test_four_eigenvalues_are_above_one():
    found = sb.factors(pairs.simulated(), bootstrap=0).found
    assert found.by_eigenvalue == found.by_parallel == 4


def test_every_analysis_runs_and_the_testbed_has_the_same_errors():
    study = pairs.simulated(90)
    bed = pairs.testbed(study)
    opened = sb.predictors(bed, bootstrap=0)
    assert {int(aim.networks.sum()) for aim in opened.aims} == {90}
    first = study[0]
    rows = [bed.model_index(f"pacs/{model}") for model in first.models]
    right = bed.accuracy(f"pacs/{first.target}")[rows]
    assert np.allclose(right, 1 - first.column("ood:error"))
    took = pairs.seconds(study)
    assert len(took) == 13
    assert min(took.values()) > 0
