"""Stores, test sets, models, reports and recipes by URL, on a real S3 server with real faults."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.cli import main
from shiftbed.errors import InputError, Unreachable, WriteError
from shiftbed.importing.exchange import import_predictions
from shiftbed.page.serve import stamp_of
from shiftbed.places import PAUSES, local, matching, patiently, shown_place, there, url_of
from shiftbed.store import PredictionStore, StoredTestSet, part_from_top, verify
from shiftbed.store.compact import compact
from tests.objects import BUCKET, Faults, before, environment, s3_server
from tools.kill_fifty import make_testbed

pytest.importorskip("moto")
s3fs = pytest.importorskip("s3fs")
PROGRAM = [sys.executable, "-c", "from shiftbed.cli import main; main()"]


@pytest.fixture(scope="module")
def server():
    with s3_server() as port:
        yield port


@pytest.fixture
def bucket(server, monkeypatch, tmp_path):
    """A folder of the bucket for one test, as a URL; the working directory is empty."""
    for key, value in environment(server).items():
        monkeypatch.setenv(key, value)
    s3fs.S3FileSystem.clear_instance_cache()  # one has the address of another server
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "cache"))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield f"s3://{BUCKET}/{tmp_path.name}"
    assert not [p.name for p in Path().iterdir() if p.name.endswith(":")], "a folder called s3:"


@pytest.fixture
def shiftbed(capsys, monkeypatch):
    """The program, in this process: what it printed, and its exit code as expected."""

    def run(*words, code=0):
        monkeypatch.setattr(sys, "argv", ["shiftbed", *map(str, words)])
        kept = [signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)]
        with pytest.raises(SystemExit) as stopped:
            main()
        for number, handler in zip((signal.SIGINT, signal.SIGTERM), kept, strict=True):
            signal.signal(number, handler)
        said = capsys.readouterr()
        assert (stopped.value.code or 0) == code, said.err
        return said

    return run


def put(url, folder, *names):
    files = PredictionStore(url).files
    for name in names:
        files.write(name, (folder / name).read_bytes())


def contents(files):
    """Files by name with their bytes; of records what does not depend on the clock."""
    found = {}
    for folder in ("predictions", "test_sets", "cells"):
        for name in files.below(folder):
            data = files.read(name)
            if name.startswith("cells/"):
                record = json.loads(data)
                data = {k: v for k, v in record.items() if k not in ("wall_seconds", "sha256")}
            found[name] = data
    return found


def unlike(one, other):
    """What differs between two files, short enough to be read in a log; None if nothing does."""
    if one == other or not isinstance(one, dict):
        return None if one == other else "other bytes"
    keys = sorted(one.keys() | other.keys())
    return {key: (one.get(key), other.get(key)) for key in keys if one.get(key) != other.get(key)}


def test_two_writers_one_killed_with_faults_equal_a_local_store(
    server, bucket, tmp_path, monkeypatch
):
    path = make_testbed(tmp_path / "bed", images=2100)
    code = path.parent / "plain_models.py"
    code.write_text(code.read_text().replace("0.003", "0.01"))
    put(f"{bucket}/bed", path.parent, "testbed.toml", "a.npz", "b.npz")
    given = {"PYTHONPATH": f"{path.parent}:{os.environ.get('PYTHONPATH', '')}"}
    monkeypatch.syspath_prepend(str(path.parent))
    monkeypatch.delitem(sys.modules, "plain_models", raising=False)  # another test's
    sb.run(path, allow_code=True)
    faults = Faults(busy=0.05, slow=0.05, cut=0.05)
    with before(server, faults) as port:
        command = [*PROGRAM, "run", "--allow-code", f"{bucket}/bed/testbed.toml", "--json"]
        variables = os.environ | given | environment(port)
        writers = [
            subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        store = PredictionStore(f"{bucket}/bed/store")
        deadline = time.time() + 120
        while len(store.files.below("predictions")) < 2 and time.time() < deadline:
            time.sleep(0.1)
        writers[0].send_signal(signal.SIGKILL)
        writers[0].communicate()
        told = json.loads(writers[1].communicate(timeout=300)[0])
    assert writers[1].returncode == 0
    assert not told["failed"]
    assert all(faults.made.values()), faults.made
    assert verify(store) == []
    remote, here = contents(store.files), contents(PredictionStore(path.parent / "store").files)
    assert sorted(remote) == sorted(here)
    assert {name: unlike(remote[name], here[name]) for name in remote} == dict.fromkeys(remote)
    whole = b"".join(store.files.read(n) for n in store.files.below("cells"))
    assert b"secret-of-a-test" not in whole
    assert b"key-of-a-test" not in whole


def test_a_store_of_ten_thousand_cells_opens_with_few_requests(server, bucket, monkeypatch):
    store = PredictionStore(f"{bucket}/store")
    settings = [f"s{j}" for j in range(10)]
    for name in settings:
        labels = np.zeros(2, int)
        store.add_test_set(
            StoredTestSet(setting=name, examples=("a", "b"), labels=labels, fingerprint=name)
        )
    part = part_from_top(np.zeros(2, int))
    store.write_part("m0", "s0", 0, part)
    store.write_cell("m0", "s0", {"status": "complete"})
    place = json.loads(store.files.read(store.files.below("cells")[0]))["sums"]
    others = [(f"m{i}", name) for i in range(1000) for name in settings][1:]
    store.manifest.write_batch(
        {"model": m, "setting": s, "status": "complete", "n": 2, "sums": place} for m, s in others
    )
    store.gather_test_sets()
    for i in range(3):
        store.write_cell(f"new{i}", "s0", {"status": "running"})
    faults = Faults()
    with before(server, faults) as port:
        for key, value in environment(port).items():
            monkeypatch.setenv(key, value)
        s3fs.S3FileSystem.clear_instance_cache()
        opened = PredictionStore.existing(f"{bucket}/store")
        assert len(opened.cells()) == 10_003
        assert sorted(opened.records()) == sorted(settings)
        assert opened.read("m0", "s0").equals(part)
    assert len(faults.requests) <= 20, faults.requests
    s3fs.S3FileSystem.clear_instance_cache()


def test_requests_do_not_grow_with_the_cells(server, bucket, monkeypatch):
    """Small cells imported, scored, put together: whatever their number."""
    rng, made = np.random.default_rng(0), {}
    for models in (10, 400):
        names = [f"m{i}" for i in range(models)]
        top1, labels = rng.integers(0, 3, (models, 20)), rng.integers(0, 3, 20)
        np.savez("val.npz", models=names, top1=top1, labels=labels)
        faults = Faults()
        with before(server, faults) as port:
            for key, value in environment(port).items():
                monkeypatch.setenv(key, value)
            s3fs.S3FileSystem.clear_instance_cache()
            import_predictions(f"{bucket}/{models}", ["val.npz"])
            assert len(sb.score(f"{bucket}/{models}").frame) == models
            compact(PredictionStore.existing(f"{bucket}/{models}"))
        made[models] = len(faults.requests)
    s3fs.S3FileSystem.clear_instance_cache()
    assert made[400] <= made[10] + 3, made


def test_every_place_of_an_evaluation_may_be_a_url(bucket, shiftbed, tmp_path):
    torch = pytest.importorskip("torch")
    folder = tmp_path / "made"
    folder.mkdir()
    rng = np.random.default_rng(0)
    np.savez(
        folder / "val.npz",
        images=rng.integers(0, 256, (50, 8, 8, 3), dtype=np.uint8),
        labels=rng.integers(0, 4, 50),
    )
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    torch.save(module.state_dict(), folder / "net.pt")
    (folder / "net.py").write_text(
        "import torch\n\ndef net():\n"
        "    made = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))\n"
        "    made.preprocessing = {'size': (8, 8), 'crop': 'none'}\n    return made\n"
    )
    put(bucket, folder, "val.npz", "net.pt")
    model = f"python:{folder}/net.py:net()?weights="
    remote = shiftbed(
        *("eval", f"{model}{bucket}/net.pt", f"{bucket}/val.npz", "--name", "net"),
        *("--store", f"{bucket}/store", "--backend", "torch", "--json"),
    )
    here = shiftbed(
        *("eval", f"{model}{folder}/net.pt", f"{folder}/val.npz", "--name", "net"),
        *("--store", tmp_path / "store", "--backend", "torch", "--json"),
    )
    assert json.loads(remote.out)["settings"] == json.loads(here.out)["settings"]
    assert "net" in shiftbed("score", f"{bucket}/store").out
    assert shiftbed("store", "verify", f"{bucket}/store").out
    shiftbed("store", "export", f"{bucket}/store", "-o", f"{bucket}/out.npz", "--setting", "val")
    assert there(f"{bucket}/out.npz")
    again = shiftbed("store", "import", f"{bucket}/second", f"{bucket}/out.npz")
    assert again.out == f"{bucket}/second: 1 cells imported\n"


def test_a_page_that_is_served_follows_a_store_at_a_url(bucket):
    seen = [stamp_of([f"{bucket}/store"])]
    files = PredictionStore(f"{bucket}/store").files
    for name, data in (("cells/a.json", b"1"), ("cells/a.json", b"2"), ("testbed.json", b"3")):
        files.write(name, data)
        seen.append(stamp_of([f"{bucket}/store"]))
        assert stamp_of([f"{bucket}/store"]) == seen[-1]
    assert len(set(seen)) == 4


def test_reports_tables_and_figures_go_to_urls(bucket, shiftbed):
    Path("results.csv").write_text(
        "model,val,sketch\n" + "".join(f"m{i},{50 + i},{20 + i * 0.9}\n" for i in range(20))
    )
    files = PredictionStore(bucket).files
    files.write("results.csv", Path("results.csv").read_bytes())
    done = shiftbed(
        *("import", f"{bucket}/results.csv", "-o", f"{bucket}/bed.parquet", "--name", "bed"),
        *(
            "--shift",
            "sketch=val:sketch",
            "--n",
            "val=10000",
            "--n",
            "sketch=10000",
            "--fit",
            "all",
        ),
    )
    assert f"{bucket}/bed.parquet" in done.out
    page = shiftbed("report", f"{bucket}/bed.parquet", "-o", f"{bucket}/r/report.html")
    assert f"wrote {bucket}/r/report.html" in page.out
    assert b"<html" in files.read("r/report.html")
    drawn = shiftbed(
        "plot", "-t", f"{bucket}/bed.parquet", "-s", "sketch", "-o", f"{bucket}/line.svg"
    )
    assert f"wrote {bucket}/line.svg" in drawn.out
    assert b"<svg" in files.read("line.svg")


WRITING = (
    "place --id val=0.7 --ood imagenet-v2=0.6 -o URL/t.csv --figure URL/f.svg",
    "fit -s imagenet-v2 -o URL/t.json --figure URL/f.svg",
    "rank -s imagenet-v2 -o URL/t.parquet --figure URL/f.svg",
    "compare resnet50 vgg16 -o URL/t.csv --figure URL/f.svg",
    "groups -s imagenet-v2 -o URL/t.csv --figure URL/f.svg",
    "correlate -o URL/t.csv",
    "plan --delta 0.02 -o URL/t.csv",
    "similarity URL/answers.npz -o URL/t.csv --figure URL/f.svg",
    "card resnet50 -o URL/card.md",
    "plot -s imagenet-v2 -o URL/f.svg",
)


@pytest.mark.parametrize("words", WRITING)
def test_whatever_a_command_writes_may_go_to_a_url(bucket, shiftbed, words):
    """The fixture sees to it that no folder called ``s3:`` is there afterwards."""
    rng = np.random.default_rng(0)
    np.savez(
        "answers.npz",
        models=["a", "b", "c"],
        top1=rng.integers(0, 3, (3, 90)),
        labels=rng.integers(0, 3, 90),
    )
    put(bucket, Path(), "answers.npz")
    given = [word.replace("URL", bucket) for word in words.split()]
    shiftbed(*given)
    files = PredictionStore(bucket).files
    for option in ("-o", "--figure"):
        if option in given:
            target = given[given.index(option) + 1]
            assert files.read(target.removeprefix(f"{bucket}/"))
    assert [one.name for one in Path().iterdir()] == ["answers.npz"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report", "-o", "s4://x/r.html"), "no known kind of URL"),
        (("corrupt", "v.npz", "URL/tree"), "a corrupted copy must be on this machine"),
        (("captions", "a.csv", "--classes", "c.txt", "-o", "URL/set"), "must be on this machine"),
        (("data", "check", "URL/sets"), "what is searched must be on this machine"),
        (("run", "URL/nothing.toml"), "no such file"),
        (("eval", "timm:resnet18", "URL/nothing", "--store", "URL/s"), "no such file"),
        (("score", "URL/nothing"), "no prediction store there"),
        (("report", "URL/nothing"), "no such file"),
        (("score", "ftp://me:word@host/store"), "credentials"),
    ],
)
def test_what_cannot_be_at_a_url_is_refused_in_a_line(bucket, shiftbed, words, said):
    np.savez("v.npz", images=np.zeros((2, 8, 8, 3), np.uint8), labels=[0, 1])
    Path("a.csv").write_text("url,caption\nu,a dog\n")
    Path("c.txt").write_text("dog\n")
    done = shiftbed(*(word.replace("URL", bucket) for word in words), code=2)
    assert said in done.err
    assert done.err.count("\n") == 1
    assert "me:word" not in done.err


def test_a_file_is_fetched_again_only_when_it_has_changed(bucket):
    files = PredictionStore(bucket).files
    files.write("set/a.txt", b"one")
    files.write("set/deep/b.txt", b"two")
    first = local(f"{bucket}/set")
    assert (first / "deep/b.txt").read_bytes() == b"two"
    stamp = (first / "a.txt").stat().st_mtime_ns
    assert local(f"{bucket}/set") == first
    assert (first / "a.txt").stat().st_mtime_ns == stamp
    files.write("set/a.txt", b"new")
    assert (local(f"{bucket}/set") / "a.txt").read_bytes() == b"new"
    assert matching(f"{bucket}/set/*.txt") == [f"{bucket}/set/a.txt"]


def test_one_of_two_writers_creates_a_file(bucket, tmp_path):
    for place in (bucket, tmp_path / "store", f"memory://{tmp_path.name}", None):
        files = PredictionStore(place).files
        assert files.create("claims/a", b"mine")
        assert not files.create("claims/a", b"theirs")
        assert files.read("claims/a") == b"mine"
        assert files.below("claims") == ["claims/a"]
        assert files.read_if_there("claims/b") is None


def test_a_server_that_never_answers_is_one_line(monkeypatch):
    monkeypatch.setattr("shiftbed.places.PAUSES", (0.0,))

    def work():
        raise OSError("connection reset")

    with pytest.raises(Unreachable, match=r"s3://x: connection reset \(tried 2 times\)"):
        patiently(work, "s3://x")
    with pytest.raises(FileNotFoundError):
        patiently(lambda: Path("nowhere").read_bytes(), "x")


def test_what_is_a_url():
    assert url_of(Path("s3://b/a b")) == "s3://b/a b"
    assert shown_place(Path("s3://b/x")) == "s3://b/x"
    for path in (
        "onnx:/abs/net.onnx",
        "C:/x",
        "file:///a",
        "a:b",
        "results/x.csv",
        "python:/a.py:f",
    ):
        assert url_of(path) is None
    with pytest.raises(InputError, match=r"^https://h/x: a URL with credentials"):
        url_of("https://h/x?X-Amz-Signature=abc")
    assert issubclass(WriteError, OSError)
    assert len(PAUSES) > 3
    assert sb.__version__
