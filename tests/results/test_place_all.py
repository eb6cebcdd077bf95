"""Every row of a file is placed as ``place`` places it alone, whatever kind of file it is."""

import json

import numpy as np
import polars as pl
import pytest
from scipy.stats import false_discovery_control

import shiftbed as sb
from shiftbed.analysis.trajectory import held_out_peak
from shiftbed.errors import InputError
from tests.cli.in_process import shiftbed
from tests.results.digits import write_store

ROWS = pl.DataFrame(
    {
        "model": ["a", "b", "resnet50", "empty"],
        "val": [0.76, 0.80, 0.7613, 0.70],
        "imagenet-v2": [0.63, 0.75, 0.6321, None],
        "imagenet-r": [0.35, None, 0.36, None],
        "mine": [0.2, 0.3, 0.4, 0.5],
    }
)


def _csv(path):
    ROWS.write_csv(path / "f.csv")
    return path / "f.csv"


def _jsonl(path):
    ROWS.write_ndjson(path / "f.jsonl")
    return path / "f.jsonl"


def _json(path):
    (path / "f.json").write_text(json.dumps(ROWS.to_dicts()))
    return path / "f.json"


def _parquet(path):
    ROWS.write_parquet(path / "f.parquet")
    return path / "f.parquet"


def _testbed(path):
    sb.write_testbed(sb.import_results(ROWS), path / "t.parquet")
    return path / "t.parquet"


@pytest.mark.parametrize("write", [_csv, _jsonl, _json, _parquet, _testbed])
def test_every_kind_of_file(imagenet, write, tmp_path):
    found = sb.place_all(imagenet, write(tmp_path))
    assert found.frame.select("model", "shift").rows() == [
        ("a", "imagenet-v2"),
        ("a", "imagenet-r"),
        ("b", "imagenet-v2"),
        ("resnet50", "imagenet-v2"),
        ("resnet50", "imagenet-r"),
    ]
    assert found.not_matched == ("mine",)
    assert found.not_placed == ("empty",)
    for row in found.frame.to_dicts():
        model = ROWS.filter(model=row["model"]).row(0, named=True)
        alone = sb.place(imagenet, {"val": model["val"]}, {row["shift"]: model[row["shift"]]})
        one = alone.frame.row(0, named=True)
        for key in ("effective", "low", "high", "p_value", "r2"):
            assert row[key] == pytest.approx(one[key], rel=1e-9)
        for key in ("trusted", "extrapolated", "interval", "id_settings", "caveats"):
            assert row[key] == one[key]


def test_false_discoveries_are_counted_over_the_whole_table(imagenet):
    found = sb.place_all(imagenet, "openclip").frame
    expected = false_discovery_control(found["p_value"])
    np.testing.assert_allclose(found["q_value"], expected, atol=1e-15)
    assert (found["out_of_line"] == (found["q_value"] <= 0.05)).all()
    assert ((found["verdict"] == "out of line") == found["out_of_line"]).all()
    assert set(found["testbed"]) == {"openclip"}


def test_a_store_is_placed(tmp_path):
    store = write_store(tmp_path / "store")
    given = sb.open_testbed(store)
    x = np.linspace(0.3, 0.95, 20)
    line = pl.DataFrame({"model": [f"m{i}" for i in range(20)], "clean": x, "noisy": 0.9 * x})
    shift = sb.Shift(name="s", kind="natural-dataset", source=("clean",), target="noisy")
    found = sb.place_all(sb.import_results(line, shifts=[shift]), store)
    assert found.frame["model"].to_list() == given.model_names
    assert found.frame["target"].to_list() == given.accuracy("noisy").tolist()


def test_runs_are_told_as_runs(imagenet):
    rows = pl.DataFrame(
        {
            "model": [f"r-{i}" for i in range(4)],
            "run": ["r"] * 4,
            "step": [30, 10, 20, 40],
            "val": [0.74, 0.6, 0.7, 0.76],
            "imagenet-v2": [0.63, 0.5, 0.62, 0.63],
        }
    )
    given = sb.import_results(rows, info=["step"])
    found = sb.place_all(imagenet, given)
    rho = dict(found.frame.select("model", "effective").rows())
    (run,) = found.runs.to_dicts()
    assert (run["start"], run["final"]) == (rho["r-1"], rho["r-3"])
    assert run["peak"] == max(rho.values())
    assert run["steps"] == 4
    assert found.to_dict()["runs"][0]["run"] == "r"
    assert "Runs" in str(found)
    assert not len(found.all_runs)


def test_the_peak_over_runs_is_chosen_on_others(imagenet):
    rng = np.random.default_rng(0)
    steps = 6
    rows = pl.DataFrame(
        {
            "model": [f"{run}-{step}" for run in "abcd" for step in range(steps)],
            "run": [run for run in "abcd" for _ in range(steps)],
            "step": list(range(steps)) * 4,
            "val": np.tile(np.linspace(0.6, 0.75, steps), 4),
            "imagenet-v2": np.tile(np.linspace(0.5, 0.62, steps), 4) + rng.normal(0, 0.01, 24),
        }
    )
    found = sb.place_all(imagenet, sb.import_results(rows, info=["step"]))
    rho = found.frame["effective"].to_numpy().reshape(4, steps)
    expected = held_out_peak(rho, steps=range(steps))
    (one,) = found.to_dict()["all_runs"]
    assert (one["peak"], one["peak_low"]) == (expected.peak.value, expected.peak.low)
    assert one["final"] == pytest.approx(rho[:, -1].mean())
    assert one["peak"] < found.runs["peak"].mean()
    assert "All runs" in str(found)


def test_json_and_files(tmp_path):
    file = _csv(tmp_path)
    done = shiftbed("place", "--from", file, "--json", "-o", "out.csv", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert [one["model"] for one in found["models"]] == ["a", "b", "resnet50"]
    one = shiftbed("place", "--id", "val=0.76", "--ood", "imagenet-v2=0.63", "--json", cwd=tmp_path)
    single = json.loads(one.stdout)
    assert single["shifts"][0].keys() <= found["models"][0]["shifts"][0].keys()
    written = pl.read_csv(tmp_path / "out.csv")
    assert len(written) == 5
    assert "ID accuracy on all of val" in written["caveats"][1]
    shiftbed("place", "--from", file, "-o", "out.parquet", cwd=tmp_path)
    assert pl.read_parquet(tmp_path / "out.parquet")["caveats"].dtype == pl.List(pl.String)


def test_what_cannot_be_placed_is_refused(imagenet, tmp_path):
    other = pl.DataFrame({"model": ["a"], "x": [0.5], "y": [0.4]})
    with pytest.raises(sb.InputError, match=r"has both accuracies of a shift .* it has x, y"):
        sb.place_all(imagenet, other)
    twice = pl.DataFrame({"model": ["a"], "val": [0.5], "imagenet-r": [0.4], "ImageNet-R": [0.3]})
    with pytest.raises(sb.InputError, match="'imagenet-r' and 'ImageNet-R' are one test set"):
        sb.place_all(imagenet, twice)
    done = shiftbed("place", "--from", "x.csv", "--model", "a", cwd=tmp_path)
    assert "takes no --model" in done.stderr


def test_models_of_both_are_ranked_and_compared(imagenet):
    found = json.loads(sb.rank(imagenet, "imagenet-v2", others=["openclip"]).to_json())
    assert {one["testbed"] for one in found["models"]} == {"imagenet-testbed-2020", "openclip"}
    assert found["n"] == len(found["models"]) == 322
    clip = next(m for m in found["models"] if m["model"] == "ViT-B-32/openai")
    alone = sb.place_all(imagenet, "openclip").frame
    row = alone.filter(model="ViT-B-32/openai", shift="imagenet-v2").row(0, named=True)
    assert clip["effective"] == pytest.approx(row["effective"])
    pair = sb.compare("resnet50", "ViT-B-32/openai", imagenet, others=["openclip"])
    assert pair.rows.filter(shift="imagenet-v2")["effective"][1] == pytest.approx(clip["effective"])
    card = sb.card("ViT-B-32/openai", imagenet, others=["openclip"], shifts=["imagenet-v2"])
    assert card.frame["effective"][0] == pytest.approx(clip["effective"])


def test_files_in_two_units_and_two_names_of_a_test_set_are_one_table(tmp_path):
    (tmp_path / "a.csv").write_text("model,imagenet,imagenet_v2\na,76.1,63.0\nb,80.2,69.5\n")
    (tmp_path / "b.csv").write_text("model,val,imagenet-sketch\na,0.761,0.24\nc,0.70,0.21\n")
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    found = sb.place_all("imagenet-testbed-2020", files).frame
    rows = {(row["model"], row["shift"]): row["source"] for row in found.iter_rows(named=True)}
    assert rows == pytest.approx(
        {
            ("a", "imagenet-v2"): 0.761,
            ("a", "imagenet-sketch"): 0.761,
            ("b", "imagenet-v2"): 0.802,
            ("c", "imagenet-sketch"): 0.70,
        }
    )
    (tmp_path / "b.csv").write_text("model,val,imagenet-sketch\na,0.70,0.24\n")
    with pytest.raises(InputError, match="are one test set, but model 'a' has two accuracies"):
        sb.place_all("imagenet-testbed-2020", files)


def test_own_images_are_noisier_and_said_to_be_independent():
    own = {"id": {"val": 0.7613}, "ood": {"imagenet-v2": 0.6321}}
    like, apart = (
        sb.place("imagenet-testbed-2020", **own, own_images=yes).frame.row(0, named=True)
        for yes in (False, True)
    )
    assert (like["interval"], apart["interval"]) == ("modelled", "independent")
    assert apart["high"] - apart["low"] > like["high"] - like["low"]
    assert apart["effective"] == like["effective"]
    assert apart["p_value"] > like["p_value"]


def test_how_to_read_a_file_is_refused_for_what_is_no_file():
    with pytest.raises(InputError, match="unit: only for files of results, which timm is not"):
        sb.place_all("imagenet-testbed-2020", "timm", unit="percent")
