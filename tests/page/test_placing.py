"""The page places a model exactly as ``place`` does, and says so in its address and its words."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shiftbed as sb
from shiftbed.page.report import report as write_report
from shiftbed.results.caveats import plain_sentence
from shiftbed.results.place import Measured
from tests.page.conftest import HOSTILE, SETTING, Open

INPUTS = 200
RESULT = """([k, x, y, n]) => {
  const one = shiftbed.placeOn(shiftbed.PLACING.lines[k], x, y, n);
  const { within, line, ...found } = one;
  return { ...found, within: within(0.95), said: shiftbed.plainSentence(one) };
}"""


def inputs(lines: list[dict[str, Any]], seed: int) -> list[tuple[int, float, float, list[int]]]:
    """Random accuracies around each line, some beyond it, at 0 or 1, or on other images."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(INPUTS):
        k = int(rng.integers(len(lines)))
        low, high = lines[k]["support"]
        x, y = np.clip(rng.uniform([low - 0.15, 0.02], [high + 0.05, 0.98]), 0.001, 0.999)
        if rng.random() < 0.7:
            line = lines[k]["pieces"][0]["coefficients"]
            mean = 1 / (1 + np.exp(-(line[0] + line[1] * np.log(x / (1 - x)))))
            y = np.clip(mean + rng.normal(0, 0.03), 0.0, 1.0)
        if rng.random() < 0.05:
            x = float(rng.integers(2))
        usual = lines[k]["usual"]
        n = [0, 0]
        if rng.random() < 0.3:
            n = [int(rng.choice([0, 500, usual[0]])), int(rng.choice([0, 300, usual[1]]))]
        found.append((k, float(x), float(y), n))
    return found


@pytest.mark.parametrize("testbed", ["imagenet-testbed-2020", "openclip"])
def test_the_page_places_models_as_python_does(
    opened: Open, report: Path, tmp_path: Path, testbed: str
) -> None:
    bed = sb.published(testbed)
    write_report(bed, tmp_path / "r.html")
    page = opened(path=tmp_path / "r.html")
    lines = page.evaluate("shiftbed.PLACING.lines")
    for k, x, y, n in inputs(lines, seed=len(testbed)):
        line = lines[k]
        source, target = (bed.settings[line[side]] for side in ("source", "target"))
        sizes = [Measured(accuracy=a, n=size) for a, size in zip((x, y), n, strict=True)]
        placed = sb.place(bed, {source: sizes[0]}, {target: sizes[1]})
        wanted = placed.frame.filter(shift=line["shift"]).row(0, named=True)
        found = page.evaluate(RESULT, [k, x, y, n])
        assert found["rho"] == pytest.approx(wanted["effective"], abs=1e-9)
        assert found["verdict"] == wanted["verdict"]
        assert found["caveats"] == list(wanted["caveats"])
        names = {"low": "low", "high": "high", "p": "p_value", "q": "q_value"}
        for mine, theirs in names.items():
            if wanted[theirs] is not None:
                assert found[mine] == pytest.approx(wanted[theirs], abs=1e-9), (mine, x, y, n)
        ends = [wanted["prediction_low"], wanted["prediction_high"]]
        assert found["within"] == pytest.approx(ends, abs=1e-9)
        said = plain_sentence(wanted, 0.95)
        assert found["said"].replace("−", "-") == f"{said[0].upper()}{said[1:]}."


def test_the_address_is_the_answer(opened: Open) -> None:
    page = opened("place=val:0.7613,imagenet-v2:0.6321")
    result = page.locator("#place-result")
    placed = sb.place("imagenet-testbed-2020", {"val": 0.7613}, {"imagenet-v2": 0.6321})
    wanted = placed.frame.row(0, named=True)
    for name, key in (("rho", "effective"), ("low", "low"), ("high", "high")):
        value = float(result.get_attribute(f"data-{name}"))
        assert value == pytest.approx(wanted[key], abs=1e-9)
    assert result.get_attribute("data-verdict") == wanted["verdict"]
    text = result.inner_text()
    said = "0.8 points below the line; ordinary: 95 in 100 baseline models lie within ±0.8"
    assert said in text
    assert said in str(placed)
    assert placed.citation in text
    nearest = page.locator("table.nearest tbody tr td:first-child").all_inner_texts()
    assert nearest == placed.nearest["model"].to_list()


def test_typing_is_enough_and_the_address_can_be_shared(opened: Open) -> None:
    page = opened()
    page.fill("[data-name=place-0]", "38065/50000")
    page.fill("[data-name=place-1]", "72 %")
    result = page.locator("#place-result")
    assert result.get_attribute("data-verdict") == "out of line"
    assert "More robust than its accuracy predicts" in result.inner_text()
    assert page.evaluate("location.hash").startswith("#place=val:38065/50000,imagenetv2")
    again = opened(page.evaluate("location.hash.slice(1)"))
    assert again.input_value("[data-name=place-1]") == "72 %"
    shown = again.locator("#place-result").get_attribute("data-rho")
    assert shown == result.get_attribute("data-rho")
    page.fill("[data-name=place-0]", "76.13")
    assert "if it is a percentage, write 76.13 %" in page.inner_text("#place-result")
    assert "no test set" not in page.inner_text("#place-result")
    unknown = opened("place=nowhere:0.7").inner_text("#place-result")
    assert "no test set “nowhere” here; those there are: ImageNet; ImageNetV2;" in unknown
    assert unknown.strip().endswith("more.")
    page.fill("[data-name=place-0]", "fast")
    assert "expected an accuracy such as 0.7613" in page.inner_text("#place-result")


def test_several_models_and_shifts_from_a_table(opened: Open) -> None:
    page = opened()
    page.click("details.csv-in summary")
    page.fill(
        "#place-csv",
        'model,ImageNet,imagenet-v2,imagenet-sketch\n"a, b",0.76,0.64,0.3\nc,0.8,0.69,\n',
    )
    page.locator("#place-csv").dispatch_event("change")
    cards = page.locator("#place-result article")
    assert cards.count() == 3
    assert [c.get_attribute("data-shift") for c in cards.all()] == [
        "imagenet-v2", "imagenet-sketch", "imagenet-v2",
    ]  # fmt: skip
    rho = float(cards.nth(1).get_attribute("data-rho"))
    wanted = sb.place("imagenet-testbed-2020", {"val": 0.76}, {"imagenet-sketch": 0.3})
    assert rho == pytest.approx(wanted.frame["effective"][0], abs=1e-9)
    again = opened(page.evaluate("location.hash.slice(1)"))
    assert again.locator("#place-result h3").first.inner_text().startswith("a, b on ImageNetV2")
    again.click("#place-result details.table summary")
    with again.expect_download() as saving:
        again.click("#place-result button.csv")
    text = Path(saving.value.path()).read_text(encoding="utf-8")
    assert [row["model"] for row in csv.DictReader(io.StringIO(text))] == ["a, b", "a, b", "c"]


def test_a_class_twin_or_the_whole_set(opened: Open) -> None:
    """ObjectNet is judged on its classes where that accuracy is given, else on all of ImageNet."""
    page = opened("place=val:0.76,objectnet:0.3")
    said = page.inner_text("#place-result")
    assert "ID accuracy on all of val, not on the OOD set's classes" in said
    page = opened("place=val:0.76,val-on-objectnet-classes:0.7,objectnet:0.3")
    said = page.inner_text("#place-result")
    assert "ID accuracy on the class twin val-on-objectnet-classes" in said
    assert page.locator("#place-result article").count() == 1
    page = opened("place=objectnet:0.3")
    assert "also needs the accuracy on" in page.inner_text("#place-result")


def test_a_name_is_text(opened: Open) -> None:
    page = opened(f"place=val:0.7,{SETTING}:0.6")
    page.fill("[data-name=place-name]", HOSTILE)
    again = opened(page.evaluate("location.hash.slice(1)"))
    assert again.locator("main img").count() == 0
    assert again.locator("#place-result").get_attribute("data-rho")
    assert again.input_value("[data-name=place-name]") == HOSTILE


def test_two_shifts_of_one_test_set_are_told_apart(opened: Open, tmp_path: Path) -> None:
    x = np.linspace(0.5, 0.9, 12)
    table = pl.DataFrame({"model": [f"m{i}" for i in range(12)], "a": x, "b": x - 0.02})
    table = table.with_columns(far=x - 0.2 + 0.01 * (-1.0) ** np.arange(12))
    bed = sb.import_results(
        table, shifts=["one=a:far", "two=b:far"], sizes={"a": 1000, "b": 1000, "far": 1000}
    )
    sb.report(bed, tmp_path / "two.html")
    page = opened("place=a:0.8,b:0.78,far:0.6", path=tmp_path / "two.html")
    titles = page.locator("#place-result h3 button").all_inner_texts()
    assert titles == ["far over a", "far over b"]
