import pytest

from tests.benchmarks.test_benchmarks import run


@pytest.mark.slow
def test_one_pass_gives_the_labels_of_the_loop():
    found = run("captions")
    assert found["same_labels"]
    assert found["ratio_to_regular_expressions"] > 1
    assert max(found["peak_mib_above_interpreter"]) < 500
