"""Every chart of the gallery from a store that has everything, and reasons where one has not."""

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from shiftbed.analysis.intervals import pearson
from shiftbed.errors import InputError
from shiftbed.figures.charts import Bars, Curves, Dots, Heatmap, Panels, Plane, Scatter
from shiftbed.page import save
from shiftbed.records import Shift
from shiftbed.results.correlation import correlate
from shiftbed.results.effects import effects
from shiftbed.results.plot import CHARTS, Source, chart, gallery, open_source
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
from shiftbed.testbed import published

CLASSES, N = 4, 300
SETTINGS = ("val", "other", "val+fog:1", "val+fog:2", "val+fog:3", "val+fog:4", "val+fog:5")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two runs of twenty steps: logits are the truth with noise that training lowers."""
    path = tmp_path_factory.mktemp("store")
    store, rng = PredictionStore(path), np.random.default_rng(0)
    labels = {s: np.arange(N) % CLASSES for s in SETTINGS}
    for i, setting in enumerate(SETTINGS):
        images = "b" if setting == "other" else "a"
        store.add_test_set(
            StoredTestSet(
                setting=setting,
                examples=tuple(f"{images}{k}" for k in range(N)),
                labels=labels[setting],
                fingerprint=images,
                classes=CLASSES,
                label_policy=f"all {CLASSES} classes",
            )
        )
        for run in ("a", "b"):
            for step in range(20):
                noise = 2.4 - 0.08 * step + 0.25 * i
                logits = rng.normal(0, noise, (N, CLASSES))
                logits[np.arange(N), labels[setting]] += 2.0
                name = f"{run}@{step:02}"
                store.write_part(name, setting, 0, part_from_logits(logits, labels[setting]))
                info = {"run": run, "step": step, "kind": "standard"}
                store.write_cell(name, setting, {"status": "complete", "info": info})
    shifts = [
        {"name": "natural", "kind": "natural-dataset", "source": ["val"], "target": "other"},
        *(
            {"name": s, "kind": "corruption", "source": ["val"], "target": s}
            for s in SETTINGS
            if "+" in s
        ),
    ]
    store.write_about({"name": "two-runs", "shifts": shifts})
    return path


@pytest.fixture(scope="module")
def source(folder: Path) -> Source:
    return open_source(str(folder))


@pytest.mark.parametrize("id", sorted(set(CHARTS) - {"effects", "factors", "probes", "relative"}))
def test_every_chart_of_a_whole_store(source: Source, tmp_path: Path, id: str) -> None:
    made = chart(source, id, "natural" if id == "scatter" else None)
    save(made, tmp_path / "a.png", dpi=50)
    save(made, tmp_path / "a.html")
    assert (tmp_path / "a.png").stat().st_size > 2000


def test_what_a_source_lacks_has_a_reason(source: Source) -> None:
    views, missing = gallery(source)
    assert {"trajectories", "similarity", "reliability", "severities"} <= {v.id for v in views}
    assert [m.id for m in missing] == ["factors", "probes"]
    assert "networks, got 2" in missing[0].reason  # two runs, however many steps
    assert "no setting that is not an accuracy" in missing[1].reason
    _, missing = gallery(open_source("openclip"))
    reasons = {m.id: m.reason for m in missing}
    assert "no column 'run'" in reasons["trajectories"]
    assert "a store" in reasons["reliability"]
    with pytest.raises(InputError, match="unknown chart"):
        chart(source, "pie")


def test_a_trajectory_is_the_robustness_of_its_steps(source: Source) -> None:
    made = chart(source, "trajectories", by="run")
    assert isinstance(made, Curves)
    assert [c.name for c in made.curves] == ["a", "b", "y = x"]
    others = source.testbed.effective_robustness("natural", models="run!=a")
    table = others.filter(pl.col("model").str.starts_with("a@"))
    wanted = table.sort("model")["effective"].to_numpy()
    np.testing.assert_allclose(made.curves[0].y, 100 * wanted)
    mean = chart(source, "trajectories")
    assert [c.name for c in mean.curves] == ["all runs (2 runs)", "y = x"]


def test_severity_lowers_accuracy(source: Source) -> None:
    made = chart(source, "severities")
    assert isinstance(made, Panels)
    curve = made.panels[0].curves[0]
    assert curve.name == "fog"
    assert curve.x.tolist() == [1, 2, 3, 4, 5]
    bed = source.testbed
    np.testing.assert_allclose(
        curve.y, [100 * bed.accuracy(f"val+fog:{i}").mean() for i in range(1, 6)]
    )


def test_the_published_severity_profile() -> None:
    """Mean over the 78 standard models: severity 3 is milder than 2 for elastic, snow, saturate."""
    made = chart(open_source("imagenet-testbed-2020"), "severities")
    assert isinstance(made, Panels)
    curves = {c.name: c.y for panel in made.panels for c in panel.curves}
    rising = {name for name, y in curves.items() if (np.diff(y) > 0).any()}
    assert rising == {"elastic transform", "snow", "saturate"}
    assert all(curves[name][2] > curves[name][1] for name in rising)


def test_relative_robustness_of_resnet50_variants(imagenet) -> None:
    made = chart(open_source("imagenet-testbed-2020"), "relative", shift="imagenet-v2")
    assert isinstance(made, Dots)
    at = made.names.index("resnet50_augmix")
    both = imagenet.accuracy("imagenetv2-matched-frequency-format-val")
    wanted = both[imagenet.model_index("resnet50_augmix")] - both[imagenet.model_index("resnet50")]
    assert made.y[at] == pytest.approx(100 * wanted)


def test_synthetic_and_natural_name_the_best_two(imagenet) -> None:
    made = chart(open_source("imagenet-testbed-2020"), "synthetic", shift="imagenet-v2")
    assert isinstance(made, Dots)
    shifts = [s.name for s in imagenet.shifts if s.kind in ("corruption", "adversarial")]
    table = correlate(imagenet, synthetic=shifts, natural=["imagenet-v2"]).frame
    best = table.sort("r", descending=True)["synthetic"][:2].to_list()
    assert all(name in made.notes[0] for name in best)
    assert f"r = {pearson(made.x, made.y)[0]:.2f}" in made.reading


def test_probes_of_the_cifar_models() -> None:
    made = chart(open_source("robustnets-2022"), "probes")
    assert isinstance(made, Heatmap)
    bed = published("robustnets-2022")
    row, column = made.rows.index("CIFAR-10.1"), made.columns.index("jacobian_norm")
    from scipy.special import ndtri
    from scipy.stats import linregress

    fitted = bed.models["in_fit_set"].to_numpy()
    x, y = bed.accuracy("jacobian_norm")[fitted], ndtri(bed.accuracy("cifar10.1_acc")[fitted])
    there = np.isfinite(x) & np.isfinite(y)
    assert made.values[row, column] == pytest.approx(linregress(x[there], y[there]).rvalue ** 2)


@pytest.mark.parametrize(
    ("name", "options", "refused"),
    [
        ("relative", {"by": "nope", "scale": "nonsense"}, "relative chart takes no option 'by'"),
        ("synthetic", {"scale": "nonsense"}, "synthetic chart takes no option 'scale'"),
        (
            "grid",
            {"shift": "imagenet-v2"},
            "grid chart takes no option 'shift'; it takes only, all",
        ),
        ("patterns", {"id": ["val"]}, "patterns chart takes no option 'id'"),
        ("severities", {"highlight": ["resnet50"]}, "severities chart takes no option 'highlight'"),
        ("similarity", {"label": 0}, "similarity chart takes no option 'label'"),
        ("relative", {"shift": "imagenet-v2", "scale": "nonsense"}, "unknown scale 'nonsense'"),
        ("scatter", {"colour": "nope", "shift": "imagenet-v2"}, "unknown column of models 'nope'"),
        ("scatter", {}, "give a shift"),
        ("scatter", {"shape": "round"}, "unknown option 'shape'"),
    ],
)
def test_an_option_is_honoured_or_refused(name: str, options: Any, refused: str) -> None:
    with pytest.raises(InputError, match=refused):
        chart("imagenet-testbed-2020", name, **options)


PLANE = {"id": ["val", "avg_corruptions"], "ood": "imagenet-r"}


@pytest.mark.parametrize(
    "option", [{"by": "kind"}, {"knee": None}, {"full_id": True}, {"level": 0.9}]
)
def test_a_plane_refuses_what_it_cannot_show(option: Any) -> None:
    with pytest.raises(InputError, match=f"plane chart takes no option '{next(iter(option))}'"):
        chart("imagenet-testbed-2020", **PLANE, **option)


def test_a_plane_honours_the_rest(imagenet) -> None:
    made = chart(imagenet, **PLANE, threshold=0.7, highlight=["alexnet"], label=0, scale="probit")
    assert isinstance(made, Plane)
    assert [made.models[i] for i in np.flatnonzero(made.labelled)] == ["alexnet"]
    shift = Shift(name="p", kind="natural-dataset", source=tuple(PLANE["id"]), target="imagenet-r")
    line = imagenet.fit(shift, threshold=0.7, scale="probit", bootstrap=0)
    assert made.weights == line.weights


def test_fit_options_reach_other_charts(imagenet) -> None:
    made = chart(imagenet, "relative", "imagenet-v2", scale="probit", highlight=["resnet50_augmix"])
    assert isinstance(made, Dots)
    assert made.labelled == ("resnet50_augmix",)
    table = imagenet.effective_robustness("imagenet-v2", scale="probit")
    rho = dict(table.select("model", "effective").iter_rows())
    np.testing.assert_allclose(made.x, [100 * rho[name] for name in made.names])


def test_the_whole_grid() -> None:
    """taori2020, Figure 7: 204 models in 213 settings, every severity a column."""
    whole = chart("imagenet-testbed-2020", "grid", all=True)
    assert (len(whole.rows), len(whole.columns)) == (204, 213)
    some = chart("imagenet-testbed-2020", "grid", only="kind=more-data")
    assert 0 < len(some.rows) < 100


def test_the_other_shift_of_a_synthetic_chart() -> None:
    """taori2020, Figure 12: r = −0.05 of attacks and ImageNetV2."""
    made = chart("imagenet-testbed-2020", "synthetic", "imagenet-v2", against="avg_pgd")
    assert made.x_title == "ρ on mean of PGD attacks (points)"
    found = correlate(synthetic=["avg_pgd"], natural=["imagenet-v2"]).frame
    assert made.reading.startswith(f"r = {found['r'][0]:.2f} over {found['n'][0]} models")
    adversarial = chart(
        "imagenet-testbed-2020", "synthetic", "imagenet-v2", against="avg_pgd", only="kind=lp-*"
    )
    assert set(adversarial.groups) == {"lp-adversarial"}


def test_variants_of_one_model_alone() -> None:
    """taori2020, Figures 9 to 11: models that are variants of a ResNet-50."""
    made = chart("imagenet-testbed-2020", "relative", "imagenet-v2", only="parent=resnet50")
    every = chart("imagenet-testbed-2020", "relative", "imagenet-v2")
    assert set(made.names) < set(every.names)
    with pytest.raises(InputError, match="among those asked for"):
        chart("imagenet-testbed-2020", "relative", "imagenet-v2", only="model=resnet50")


def test_a_line_of_logits_is_a_curve_on_linear_axes() -> None:
    """andreassen2021, Figure 2b: the same models and line, drawn back."""
    scaled, made = (
        chart("imagenet-testbed-2020", "scatter", "imagenet-v2", draw=draw)
        for draw in (None, "linear")
    )
    assert isinstance(made, Scatter)
    assert isinstance(scaled, Scatter)
    assert made.equations == scaled.equations
    assert made.x_axis.low > 0.0
    assert made.x_axis.at(0.5) == 0.5
    (line,) = made.trends
    odds = np.exp(0.92172 * np.log(line.x / (1 - line.x)) - 0.49472)
    np.testing.assert_allclose(line.predicted, odds / (1 + odds), atol=1e-4)
    bend = np.diff(line.predicted) / np.diff(line.x)
    assert bend.max() > 1.1 * bend.min()


def test_triplets_of_models_id_and_ood(source: Source) -> None:
    """andreassen2021, Figure 20: how often all of three are right is at most any one's accuracy."""
    made = chart(source, "similarity", "natural", draw="triplets")
    assert isinstance(made, Dots)
    assert len(set(made.names)) == 4
    all_right = [x for name, x in zip(made.names, made.x, strict=True) if name.startswith("3")]
    assert max(all_right) <= source.testbed.accuracy("val").max()


def test_metrics_by_group_and_the_effect_of_a_recipe() -> None:
    """wenzel2022, Figures S2 and 5: a row per task; differences with their sides."""
    by_task = chart("robustnets-2022", "predictiveness", by="task")
    assert isinstance(by_task, Heatmap)
    assert by_task.rows == ("robustnets-2022",)
    sides: Any = {"column": "augmentation", "of": ["augmix"], "against": "clean"}
    made = chart("robustnets-2022", "effects", draw="differences", **sides)
    assert isinstance(made, Bars)
    table = effects("robustnets-2022", **sides | {"against": ["clean"]}).frame
    assert sorted(np.ravel(made.values)) == pytest.approx(sorted(table["mean"].to_list()))
    with pytest.raises(InputError, match="needs --column"):
        chart("robustnets-2022", "effects", draw="differences")
