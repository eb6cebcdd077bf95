"""Every result with intervals of ρ says in its JSON which kind each is, how many families the line
rests on, and what is flagged."""

import json

import pytest

import shiftbed as sb
from tests.results.digits import write_store


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    return write_store(tmp_path_factory.mktemp("named") / "store")


def rows_of(name, answers):
    """The places of a result's JSON that carry an interval."""
    shift = "imagenet-v2"
    if name == "place":
        found = sb.place("imagenet-testbed-2020", {"val": 0.7613}, {shift: 0.6321})
        return json.loads(found.to_json())["shifts"]
    if name == "rank":
        return json.loads(sb.rank("imagenet-testbed-2020", shift).to_json())["models"]
    if name == "groups":
        found = sb.groups("imagenet-testbed-2020", shift=[shift], by="kind")
        return json.loads(found.to_json())["groups"]
    if name == "compare":
        found = sb.compare("resnet50", "resnet50_augmix", "imagenet-testbed-2020", shift=shift)
        shifts = json.loads(found.to_json())["shifts"]
        return shifts + [row for one in shifts for row in one["rows"]]
    if name == "plan":
        return [json.loads(sb.plan(0.02, "imagenet-testbed-2020").to_json())]
    found = json.loads(sb.estimate(answers, id="clean", ood="noisy").to_json())
    return [row | {key: found[key] for key in ("families", "flags")} for row in found["estimates"]]


@pytest.mark.parametrize("name", ["place", "rank", "groups", "compare", "plan", "estimate"])
def test_json_names_the_interval_the_families_and_what_is_flagged(name, answers):
    rows = rows_of(name, answers)
    assert rows
    for row in rows:
        low = row.get("low")
        withheld = name != "plan" and low is None
        assert row["interval"] in ((None,) if withheld else ("paired", "modelled", "independent"))
        families = row["families"]
        assert families is None if name == "estimate" else families >= 1
        said = row["flags"] if "flags" in row else row["caveats"]
        assert isinstance(said, list)
