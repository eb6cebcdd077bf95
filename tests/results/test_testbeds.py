from shiftbed.results import catalogue as shown
from shiftbed.testbed import PUBLISHED


def test_all_published_ones_are_listed():
    found = shown.testbeds()
    assert found.frame["testbed"].to_list() == list(PUBLISHED)
    assert found.to_dict()["testbeds"][0]["n_models"] == 204
    assert all(one["citation"] for one in found.to_dict()["testbeds"])


def test_one_is_described(imagenet):
    found = shown.describe(imagenet, settings=True, models=True)
    assert found.frame["shift"].to_list() == [shift.name for shift in imagenet.shifts]
    everything = found.to_dict()
    assert len(everything["settings"]) == len(imagenet.settings)
    assert len(everything["models"]) == everything["n_models"] == 204
    titles = [table.title for table in found.tables()]
    assert titles == [f"{imagenet.name}: {imagenet.title}", "Settings", "Models", ""]
    assert found.notes[0].startswith("204 models, 78 of them in the fit set")
