"""What is known of predictions is not read again, and never used where it might not hold."""

import os
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.analysis.joint_counts import same_with
from shiftbed.results import pair_counts
from shiftbed.results.cell_metrics import METRICS
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
from shiftbed.store import derived as module
from shiftbed.store.check import verify
from shiftbed.store.compact import compact
from shiftbed.store.files import LocalFiles
from shiftbed.store.object_store import RemoteFiles
from tests.cli.in_process import shiftbed

MODELS = [f"model{i}" for i in range(8)]
SETTINGS = ("val", "noisy")


def add_cell(store: PredictionStore, model: str, setting: str, unreadable: int = 0) -> None:
    n, skill = len(store.test_set(setting)), 0.5 + int(model[5:]) / 4
    rng = np.random.default_rng(int(model[5:]) + 100 * SETTINGS.index(setting))
    labels = store.test_set(setting).labels
    logits = rng.normal(0, 1, (n, 5)).astype(np.float32)
    logits[np.arange(n), labels] += skill if setting == "val" else skill / 2
    readable = np.arange(n) >= unreadable
    for start in (0, 200):
        some = slice(start, start + 200)
        part = part_from_logits(logits[some], labels[some], readable=readable[some])
        store.write_part(model, setting, start, part)
    store.write_cell(model, setting, {"status": "complete"})


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "cache"))
    store = PredictionStore(tmp_path / "store")
    rng = np.random.default_rng(0)
    for setting in SETTINGS:
        store.add_test_set(
            StoredTestSet(
                setting=setting,
                examples=tuple(map(str, range(400))),
                labels=rng.integers(0, 5, 400),
                fingerprint=setting,
                label_policy="all 5 classes",
                groups=tuple(np.where(np.arange(400) < 100, "few", "many")),
            )
        )
    for model in MODELS:
        for setting in SETTINGS:
            add_cell(store, model, setting, unreadable=3 * (model == "model2"))
    shift = {"name": "noise", "kind": "natural-dataset", "source": ["val"], "target": "noisy"}
    store.write_about({"name": "bed", "shifts": [shift]})
    return tmp_path / "store"


@pytest.fixture
def opened(monkeypatch) -> list[str]:
    """Files of predictions, as they are opened."""
    names: list[str] = []
    read = LocalFiles.read

    def noting(self: LocalFiles, name: str) -> bytes:
        if name.startswith(("predictions/", "packs/")):
            names.append(name)
        return read(self, name)

    monkeypatch.setattr(LocalFiles, "read", noting)
    return names


ASK = {
    "score": lambda place: sb.score(place, metrics=METRICS).to_dict(),
    "fit": lambda place: sb.fit(place, "noise").to_dict(),
    "report": lambda place: sb.report(place).page,
    "similarity": lambda place: sb.similarity(
        place, setting="val", pairs=True, unsolved=True, difficulty=True, triplets="noisy"
    ).to_dict(),
}


def cells(names: list[str]) -> set[str]:
    return {name.rpartition("/")[0].removeprefix("predictions/") for name in names}


@pytest.mark.parametrize("command", ASK)
def test_a_second_time_no_predictions_are_opened_and_numbers_are_equal(command, place, opened):
    first = ASK[command](place)
    assert opened
    opened.clear()
    assert repr(ASK[command](place)) == repr(first)
    assert opened == []


@pytest.mark.parametrize("command", ["score", "fit", "report"])
def test_of_one_new_cell_only_its_predictions_are_opened(
    command, place, opened, tmp_path, monkeypatch
):
    ASK[command](place)
    add_cell(PredictionStore(place), "model9", "val")
    opened.clear()
    found = ASK[command](place)
    assert cells(opened) == {"model=model9/setting=val"}
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "nothing known"))
    assert repr(ASK[command](place)) == repr(found)


def test_a_new_model_is_compared_with_the_others_which_are_not_counted_again(
    place, tmp_path, monkeypatch
):
    counted = []
    monkeypatch.setattr(
        pair_counts,
        "same_with",
        lambda some, others: counted.append((len(some), len(others))) or same_with(some, others),
    )
    ASK["similarity"](place)
    add_cell(PredictionStore(place), "model9", "val")
    add_cell(PredictionStore(place), "model9", "noisy")
    found = ASK["similarity"](place)
    assert counted == [(1, 8)]
    assert len(found["models"]) == 9
    some = sb.similarity(place, setting="val", model=["model9", "model1"]).to_dict()
    assert counted == [(1, 8)]
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "nothing known"))
    assert repr(ASK["similarity"](place)) == repr(found)
    again = sb.similarity(place, setting="val", model=["model9", "model1"]).to_dict()
    assert repr(again) == repr(some)


def test_however_many_models_are_compared_a_few_are_in_memory(place, tmp_path, monkeypatch):
    whole = ASK["similarity"](place)
    monkeypatch.setenv("SHIFTBED_CACHE", str(tmp_path / "nothing known"))
    monkeypatch.setattr(pair_counts, "HELD", 3 * 400)
    monkeypatch.setattr(pair_counts, "BESIDE", 2 * 400)
    most, read = [0], pair_counts.classes_of
    monkeypatch.setattr(
        pair_counts,
        "classes_of",
        lambda *given: most.append(len(given[2])) or read(*given),
    )
    assert repr(ASK["similarity"](place)) == repr(whole)
    assert max(most) == 3


def test_of_chosen_models_only_their_predictions_are_opened(place, opened):
    found = sb.similarity(place, setting="val", model=["model1", "model4"])
    assert cells(opened) == {f"model=model{i}/setting=val" for i in (1, 4)}
    assert found.counts.n == 400  # what a third one could not read does not matter


def test_intervals_at_another_level_need_no_predictions(place, opened):
    sb.score(place, metrics=METRICS)
    opened.clear()
    wide = sb.score(place, metrics=METRICS, level=0.99).frame
    assert opened == []
    usual = sb.score(place, metrics=METRICS, level=0.9).frame
    has = wide["low"].is_not_null()
    assert has.any()
    assert (wide.filter(has)["low"] < usual.filter(has)["low"]).all()


@pytest.mark.parametrize("harm", ["flipped", "cut", "empty", "renamed"])
def test_a_damaged_table_is_not_used(harm, place, opened):
    first = ASK["score"](place)
    for file in (place.parent / "cache/derived").rglob("*.parquet"):
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        if harm == "renamed":  # whole, but not what its name says
            file.rename(file.with_name("0" * 64 + ".parquet"))
        else:
            file.write_bytes({"flipped": data, "cut": data[:50], "empty": b""}[harm])
    opened.clear()
    assert repr(ASK["score"](place)) == repr(first)
    assert len(cells(opened)) == len(MODELS) * len(SETTINGS)
    opened.clear()
    ASK["score"](place)
    assert opened == []  # and was replaced


def test_other_code_knows_nothing(place, opened, monkeypatch):
    first = ASK["score"](place)
    monkeypatch.setattr(module, "_code", lambda *files: "of another release")
    opened.clear()
    assert repr(ASK["score"](place)) == repr(first)
    assert len(cells(opened)) == len(MODELS) * len(SETTINGS)


def test_the_code_is_what_its_files_say(tmp_path, monkeypatch):
    before = module._code("results/cell_metrics.py")
    assert before != module._code("results/scores.py")
    package = tmp_path / "package"
    for name in ("results/cell_metrics.py", "store/answers.py", "labels/__init__.py"):
        (package / name).parent.mkdir(parents=True)
        (package / name).write_text("x = 1\n")
    monkeypatch.setattr(module, "_PACKAGE", package)
    found = set()
    for name in ("", "results/cell_metrics.py", "store/answers.py", "labels/__init__.py"):
        if name:
            (package / name).write_text("x = 2\n")
        module._code.cache_clear()
        found.add(module._code("results/cell_metrics.py"))
    module._code.cache_clear()
    assert len(found) == 4


def test_other_labels_under_the_same_name_are_judged_anew(place, tmp_path):
    before = ASK["score"](place)["settings"]
    other = PredictionStore(place)
    for name in ("json", "parquet"):
        other.files.remove(f"test_sets/setting=val.{name}")
    other.add_test_set(
        StoredTestSet(
            setting="val",
            examples=tuple(map(str, range(400))),
            labels=np.zeros(400, dtype=np.int64),
            fingerprint="other",
            label_policy="all 5 classes",
        )
    )
    after = ASK["score"](place)["settings"]
    top1 = [[r["value"] for r in rows if r["metric"] == "top1"] for rows in (before, after)]
    best = PredictionStore(place).read("model3", "val", ["class_1"])["class_1"]
    assert top1[0] != top1[1]
    assert np.mean(best.to_numpy() == 0) in top1[1]


def test_a_bit_that_was_flipped_is_told_by_score_and_by_verify(place):
    sb.score(place)
    file = next(place.glob("predictions/model=model4/setting=val/part-0000000000*"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    row = sb.score(place).frame.filter(model="model4", setting="val").row(0, named=True)
    assert row["value"] is None
    assert "is damaged" in row["note"]
    assert [one.kind for one in verify(PredictionStore(place))] == ["damaged"]
    done = shiftbed("store", "verify", "store", cwd=place.parent)
    assert done.returncode == 1
    assert "model4 on val" in done.stdout


def test_what_a_disk_lost_without_a_trace_is_told_by_verify(place, monkeypatch):
    """Nothing says that the file was written to: the number is the known one, which is right."""
    known = sb.score(place).frame
    file = next(place.glob("predictions/model=model4/setting=val/part-0000000000*"))
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    names = {f"{p.relative_to(place)}": p.stat().st_ctime_ns for p in place.rglob("*.parquet")}
    file.write_bytes(data)
    monkeypatch.setattr(LocalFiles, "version", lambda self, name: str(names[name]))
    assert sb.score(place).frame.equals(known)
    assert [one.kind for one in verify(PredictionStore(place))] == ["damaged"]


def test_a_store_by_url_is_asked_for_its_predictions_once(place, monkeypatch):
    url = f"memory://derived-{place.parent.name}"
    remote = PredictionStore(url)
    for file in place.rglob("*"):
        if file.is_file() and file.name != ".lock":
            remote.files.write(file.relative_to(place).as_posix(), file.read_bytes())
    names: list[str] = []
    read = RemoteFiles.read
    monkeypatch.setattr(
        RemoteFiles, "read", lambda self, name: names.append(name) or read(self, name)
    )
    first = {name: repr(ask(url)) for name, ask in ASK.items()}
    assert any(name.startswith("predictions/") for name in names)
    names.clear()
    assert {name: repr(ask(url)) for name, ask in ASK.items()} == first
    assert names
    assert not any(name.startswith("predictions/") for name in names)


def test_a_file_that_is_gone_is_missed(place):
    sb.score(place)
    for file in place.glob("predictions/model=model4/setting=val/*"):
        file.unlink()
    with pytest.raises(sb.InputError, match="no predictions of 'model4' on 'val'"):
        sb.score(place)


def test_cells_that_were_packed_are_read_once_more(place, opened):
    first = ASK["score"](place)
    compact(PredictionStore(place))
    opened.clear()
    assert repr(ASK["score"](place)) == repr(first)
    assert opened
    opened.clear()
    assert repr(ASK["score"](place)) == repr(first)
    assert opened == []


def test_nothing_is_written_to_the_store(place):
    before = {file: file.stat().st_mtime_ns for file in place.rglob("*") if file.is_file()}
    for ask in ASK.values():
        ask(place)
    after = {file: file.stat().st_mtime_ns for file in place.rglob("*") if file.is_file()}
    assert after == before


def test_where_nothing_can_be_kept_all_is_read(place, opened, monkeypatch):
    first = {name: repr(ask(place)) for name, ask in ASK.items()}
    no_folder = place.parent / "a file"
    no_folder.write_text("")
    monkeypatch.setenv("SHIFTBED_CACHE", str(no_folder))
    for name, ask in ASK.items():
        opened.clear()
        assert repr(ask(place)) == first[name]
        assert opened


def test_cells_without_checksums_are_read_every_time(place, opened):
    store = PredictionStore(place)
    record = store.cell("model1", "val")
    assert record is not None
    store.write_json("cells/model=model1/setting=val.json", record)  # as before there were any
    sb.score(place)
    opened.clear()
    sb.score(place)
    assert cells(opened) == {"model=model1/setting=val"}


def test_many_small_tables_become_one(place):
    store = PredictionStore(place)
    for i in range(10, 10 + 2 * module.FEW):
        sb.score(place, settings=["val"])
        add_cell(store, f"model{i}", "val")
    sb.score(place, settings=["val"])
    (folder,) = (place.parent / "cache/derived").iterdir()
    assert len(list(folder.iterdir())) <= module.FEW + 1


def test_the_longest_unused_go_where_there_is_too_much(place, monkeypatch):
    shelf = place.parent / "cache/derived"
    sb.score(place, settings=["val"])
    (old,) = shelf.iterdir()
    os.utime(old, (1, 1))
    monkeypatch.setattr(module, "ROOM", sum(f.stat().st_size for f in old.iterdir()) * 3 // 2)
    monkeypatch.setattr(module, "OFTEN", 0.0)
    sb.score(place, settings=["noisy"])
    assert old not in shelf.iterdir()
    assert len(list(shelf.iterdir())) == 1


def _score(place: str) -> list[float]:
    return sb.score(place).frame["value"].to_list()


def test_several_processes_at_once(place):
    with get_context("spawn").Pool(3) as pool:
        found = pool.map(_score, [str(place)] * 6)
    assert all(one == found[0] for one in found)
    assert not list((place.parent / "cache/derived").rglob(".*"))
