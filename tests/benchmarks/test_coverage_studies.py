"""The cases of dependent units and others cover, as far as few simulations can tell."""

import pytest

from benchmarks import coverage_studies as studies

KEYS = {"case", "coverage", "mc_error", "width", "simulations", "flagged"}
QUICK = (
    studies.case_bias_of_a_shift,
    studies.case_correlation_by_run,
    studies.case_mean_r2_of_nothing,
    studies.case_peak_over_images,
    studies.case_peak_over_runs,
    studies.case_predictiveness_two_way,
)


@pytest.mark.parametrize("case", QUICK, ids=lambda case: case.__name__)
def test_defaults_cover(case):
    found = case(60, 1)
    assert found.keys() == KEYS
    assert found["flagged"] == (case is studies.case_mean_r2_of_nothing)  # groups of 20 models
    assert found["coverage"] >= 0.95 - 4 * max(found["mc_error"], 0.025)


def test_pairs_as_if_independent_do_not_cover_and_are_flagged():
    found = studies.case_predictiveness_by_pair(60, 1)
    assert found["flagged"]
    assert found["coverage"] < 0.85


def test_every_case_has_its_own_name():
    assert len(studies.CASES) >= 20
    assert len({case.__name__ for case in studies.CASES}) == len(studies.CASES)
