"""``make audit`` claims nothing of packages that were not looked up."""

import doctest

from tools import audit


def package(name, **more):
    return {"name": name, "version": "1.0", "vulns": []} | more


def test_examples():
    assert doctest.testmod(audit).failed == 0


def test_a_vulnerable_package_is_named_and_fails():
    found = [{"id": "PYSEC-1", "fix_versions": ["1.1"]}, {"id": "GHSA-2", "fix_versions": []}]
    code, said = audit.judged({"dependencies": [package("a"), package("b", vulns=found)]})
    assert code == 1
    assert said.splitlines() == [
        "b 1.0: PYSEC-1, mended in 1.1",
        "b 1.0: GHSA-2, mended in no release",
    ]


def test_what_could_not_be_looked_up_is_no_success():
    skipped = [{"name": f"p{i}", "skip_reason": "not found on PyPI"} for i in range(5)]
    code, said = audit.judged({"dependencies": [package("a"), *skipped]})
    assert code == 1
    assert said == "not audited: the service of advisories does not know p0, p1, p2, … (5 of 6)"
