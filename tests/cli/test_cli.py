"""The command line as a user meets it: a process, its output, its exit code."""

import json
import os
import signal
import subprocess
import sys

import pytest

V2 = "imagenetv2-matched-frequency-format-val"


def shiftbed(*arguments: str, cwd=None) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", "from shiftbed.cli import main; main()", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
    )


def as_json(*arguments: str) -> dict:
    done = shiftbed(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TestContracts:
    """JSON that others build on."""

    def test_fit(self):
        found = as_json("fit", "--testbed", "imagenet-testbed-2020", "--shift", "imagenet-v2")
        assert (found["shift"], found["scale"], found["id_settings"]) == (
            "imagenet-v2",
            "logit",
            ["val"],
        )
        assert found["n"] == 78
        assert [round(w, 5) for w in found["weights"]] == [0.92170]
        assert round(found["intercept"], 5) == -0.49467
        assert round(found["r2"], 4) == 0.9965
        assert 0 < found["mae"] < 0.01
        (piece,) = found["pieces"]
        assert {"from", "to", "weights", "intercept", "n"} <= piece.keys()
        assert (piece["from"], piece["to"], piece["n"]) == (0.0, 1.0, 78)

    def test_fit_with_a_knee_has_two_pieces(self):
        found = as_json("fit", "--shift", "imagenet-a")
        assert [(p["from"], p["to"]) for p in found["pieces"]] == [(0, 0.9186), (0.9186, 1)]

    def test_fit_of_a_plane(self):
        found = as_json(
            "fit", "--id", "val", "--id", "val-on-objectnet-classes", "--ood", "objectnet-1.0-beta"
        )
        assert len(found["weights"]) == 2

    def test_fit_by_group(self):
        found = as_json(
            *("fit", "-t", "robustnets-2022", "--shift", "cifar10.1", "--by", "architecture"),
            *("--scale", "probit"),
        )
        assert set(found["groups"]) == {"Conv8", "ResNet18", "VGG16"}

    def test_place(self):
        found = as_json("place", "--id", "val=38065/50000", "--ood", f"{V2}=0.6321")
        (shift,) = found["shifts"]
        keys = "shift predicted effective low high prediction_low prediction_high p_value"
        assert set(keys.split()) | {"extrapolated"} <= shift.keys()
        assert shift["shift"] == "imagenet-v2"
        assert shift["effective"] == pytest.approx(0.6321 - shift["predicted"])
        assert shift["low"] < shift["effective"] < shift["high"]
        assert shift["extrapolated"] is False
        assert found["nearest"][0]["model"] == "resnet50"
        assert "NeurIPS 2020" in found["citation"]

    def test_place_several_and_by_shift_name(self):
        found = as_json(
            *("place", "--id", "val=0.80", "--ood", "imagenet-v2=0.70"),
            *("--ood", "imagenet-sketch=0.35", "--ood", "objectnet=0.40"),
        )
        names = [s["shift"] for s in found["shifts"]]
        assert names == ["imagenet-v2", "imagenet-sketch", "objectnet"]

    def test_place_sensitivity(self):
        found = as_json("place", "--id", "val=0.80", "--ood", "imagenet-v2=0.70", "--sensitivity")
        (one,) = found["sensitivity"]
        assert one["choices"] == len([r for r in one["rows"] if r["effective"] is not None])
        assert one["low"] <= found["shifts"][0]["effective"] <= one["high"]

    def test_place_a_model_of_the_testbed(self):
        found = as_json("place", "--model", "resnet50_augmix")
        assert len(found["shifts"]) == 60

    def test_reproduce(self):
        found = as_json("reproduce", "andreassen2021")
        keys = {"table", "row", "column", "printed", "recomputed", "difference", "status", "why"}
        assert all(cell.keys() == keys for cell in found["cells"])
        statuses = {"equal", "follows from print", "differs", "not recomputable", "not legible"}
        statuses |= {"not printed"}
        assert {cell["status"] for cell in found["cells"]} <= statuses


@pytest.mark.parametrize(
    "arguments",
    [
        ["testbeds"],
        ["testbeds", "show", "openclip", "--settings", "--models"],
        ["rank", "--shift", "imagenet-v2", "--only", "kind=more-data", "-n", "3"],
        ["rank", "-n", "3"],
        ["compare", "resnet50", "vgg16", "--shift", "imagenet-v2"],
        ["groups", "--shift", "imagenet-v2", "--shift", "objectnet"],
        ["groups", "--id", "val", "--id", "greyscale", "--ood", V2],
        ["correlate", "--natural", "imagenet-v2"],
        ["plan", "--delta", "0.01", "--simulate", "50"],
        ["place", "--id", "val=0.8", "--ood", "imagenet-v2=0.7", "--sensitivity"],
        ["fit", "--shift", "imagenet-a"],
    ],
    ids=" ".join,
)
class TestEveryTable:
    def test_prints_a_table(self, arguments):
        done = shiftbed(*arguments)
        assert done.returncode == 0, done.stderr
        assert not done.stderr
        assert len(done.stdout.splitlines()) > 3
        assert "nan" not in done.stdout.lower().replace("nanometre", "")

    def test_prints_json(self, arguments):
        if "show" in arguments:
            arguments = arguments[:3]
        assert as_json(*arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "--shift", "imagenet-v3"], "did you mean 'imagenet-v2'"),
        (["fit", "-t", "imagenet-testbed", "--shift", "x"], "or 'imagenet-testbed-2020'"),
        (["fit"], "give a shift, or at least one ID setting (id) and an OOD"),
        (
            ["fit", "--shift", "imagenet-v2", "--id", "val"],
            "give either a shift, or ID settings",
        ),
        (["fit", "--shift", "imagenet-v2", "--scale", "cubic"], "unknown scale 'cubic'"),
        (["fit", "--shift", "imagenet-v2", "--level", "95"], "level must lie between 0 and 1"),
        (["fit", "--shift", "imagenet-v2", "--knee", "x"], "knee must be"),
        (
            ["fit", "--shift", "imagenet-a", "--knee", "none"],
            "'resnet50' has an accuracy of exactly",
        ),
        (["fit", "--shift", "imagenet-v2", "--fit-on", "model=alexnet"], "too few models"),
        (["fit", "--shift", "imagenet-v2", "--by", "color"], "unknown column of models"),
        (["fit", "--shift", "imagenet-v2", "--full-id"], "already uses the whole ID set"),
        (["place", "--model", "resnet50", "--name", "mine"], "it goes with no id"),
        (["groups", "--id", "val", "--id", V2, "--ood", "greyscale", "-s", "x"], "take no shift"),
        (["place", "--id", "val=76.13", "--ood", "imagenet-v2=0.6"], "write 0.7613"),
        (["place", "--id", "val=0.7", "--ood", "imagenet-v2=-0.6"], "must be a fraction in [0, 1]"),
        (["place", "--id", "val=nan", "--ood", "imagenet-v2=0.6"], "cannot be NaN"),
        (["place", "--id", "val=7/0", "--ood", "imagenet-v2=0.6"], "not a count of right answers"),
        (["place", "--id", "val=9/7", "--ood", "imagenet-v2=0.6"], "not a count of right answers"),
        (["place", "--id", "val", "--ood", "imagenet-v2=0.6"], "expected SETTING=ACCURACY"),
        (["place", "--id", "val=x", "--ood", "imagenet-v2=0.6"], "expected an accuracy such as"),
        (["place", "--id", "vall=0.7", "--ood", "imagenet-v2=0.6"], "did you mean 'val'"),
        (["place", "--id", "val=0.7", "--id", "val=0.8", "--ood", "objectnet=0.3"], "given twice"),
        (["place", "--id", "val=0.7"], "at least one ID and one OOD"),
        (["place", "--model", "resnet"], "unknown model"),
        (["compare", "resnet50", "resnet51"], "did you mean"),
        (["rank", "--by", "colour"], "unknown column to sort by"),
        (["plan", "--delta", "2"], "delta must be a fraction"),
        (["reproduce", "taori2021"], "did you mean 'taori2020'"),
        (["testbeds", "show", "nothing.parquet"], "no such testbed file"),
        (["plot", "-o", "x.gif", "--shift", "imagenet-v2"], ".png"),
        (["import", "missing.csv", "-o", "x.parquet"], "missing.csv"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_gets_one_line_and_exit_code_2(tmp_path, arguments, message):
    done = shiftbed(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("shiftbed: ")
    assert message in line
    assert not list(tmp_path.iterdir())


def test_wrong_usage_exits_with_2():
    assert shiftbed("place", "--no-such-option").returncode == 2
    assert shiftbed("nonsense").returncode == 2


def test_the_package_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "shiftbed", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == shiftbed("--version").stdout


def test_version():
    assert shiftbed("--version").stdout.startswith("shiftbed ")


def test_a_reader_that_leaves_is_no_error():
    code = "from shiftbed.cli import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "testbeds", "show", "timm", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.read(10)
    child.stdout.close()
    errors = child.stderr.read()
    child.stderr.close()
    child.wait()
    assert b"Traceback" not in errors


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_is_one_line(number):
    code = "from shiftbed.cli import main; main()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "imagenet-testbed-2020", "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline()  # it listens
    child.send_signal(number)
    _, errors = child.communicate()
    assert child.returncode == 128 + number
    assert errors.splitlines() == ["shiftbed: stopped; what is written is whole"]


def test_the_unexpected_is_one_line_and_a_log_file(tmp_path):
    code = (
        "import sys, shiftbed.results.place as place\n"
        "def fail(*a, **k): raise RuntimeError('first\\nsecond')\n"
        "place.open_testbed = fail\n"
        "from shiftbed.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "place", "--id", "val=0.7", "--ood", "imagenet-v2=0.6"],
        capture_output=True,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        check=False,
    )
    (log,) = tmp_path.glob("shiftbed-*.log")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("shiftbed: unexpected error: RuntimeError: first; details")
    assert str(log) in line
    assert "Traceback" in log.read_text()


def test_a_device_is_not_replaced():
    done = shiftbed("report", "imagenet-testbed-2020", "-s", "objectnet", "-o", "/dev/null")
    assert done.returncode == 2
    assert "no regular file" in done.stderr
    assert not os.path.isfile("/dev/null")
