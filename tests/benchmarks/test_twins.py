import pytest

from tests.benchmarks.test_benchmarks import run


@pytest.mark.slow
def test_undecided_rows_are_counted():
    found = run("twins")
    assert found["undecided_rows"] == found["undecided_rows_as_reported"] > 0
    assert found["images"] == 50_000
