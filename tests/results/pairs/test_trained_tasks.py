"""From a recipe's task to every number of its pairs: trained, and checked by plain numpy."""

from dataclasses import replace
from functools import cache

import numpy as np
import polars as pl
import pytest
from PIL import Image
from scipy.stats import false_discovery_control, wilcoxon

import shiftbed as sb
from shiftbed.catalogue import find_task
from shiftbed.catalogue.maps import domain_classes
from shiftbed.errors import InputError
from shiftbed.page.findings import findings
from shiftbed.results.caveats import judge
from shiftbed.results.pairs import open_pairs
from shiftbed.results.plot import CHARTS
from shiftbed.store import PredictionStore
from shiftbed.training import read_recipe
from shiftbed.training.train import train

pytest.importorskip("torch")
EACH = 20
DOMAINS = [domain.name for domain in find_task("pacs").domains]
NET = """
import torch
def build(width):
    made = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(192, width), torch.nn.ReLU(), torch.nn.Linear(width, 7)
    )
    made.preprocessing = {"size": (8, 8), "mean": (0.5,) * 3, "std": (0.25,) * 3}
    return made


def narrow():
    return build(3)


def middle():
    return build(8)


def wide():
    return build(24)
"""
RECIPE = """
name = "tiny"
store = "store"
runs = "runs"

[tasks.pacs]
path = "PACS"
held_out = 0.4
validation = 0.2
corruptions = ["contrast:3", "gaussian_noise:3"]
"""
GRID = """
[[grid]]
name = "{name}"
model = "python:net.py:{name}()"
data = {{name = "pacs/*", shots = ["all", 4]}}
optimiser = {{name = "SGD", lr = 0.1}}
batch_size = 16
epochs = 2
checkpoints = {{every = 1, unit = "epoch"}}
augmentation = "none"
{backbone}
"""
BACKBONES = {"narrow": "resnet50.tv_in1k", "middle": "timm:resnet50.a1_in1k", "wide": None}
RECIPE += "".join(
    GRID.format(name=name, backbone=f'backbone = "{known}"' if known else "")
    for name, known in BACKBONES.items()
)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Seven patterns of 8 px, the same in all domains, in colours and noise of each domain."""
    root, rng = tmp_path_factory.mktemp("tasks"), np.random.default_rng(0)
    shapes = rng.normal(0, 1, (7, 8, 8, 3))
    for d, domain in enumerate(find_task("pacs").domains):
        colour = rng.normal(0, 0.6, (8, 8, 3))
        for shape, name in zip(shapes, domain_classes("pacs"), strict=True):
            for i in range(EACH):
                noise = rng.normal(0, 1.5 + 0.3 * d, (8, 8, 3))
                image = 128 + 25 * (shape + colour + noise)
                path = root / "PACS" / domain.folders[0] / name / f"{i}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(image.clip(0, 255).astype(np.uint8)).save(path)
    (root / "net.py").write_text(NET)
    (root / "recipe.toml").write_text(RECIPE)
    done = train(read_recipe(root / "recipe.toml", allow_code=True))
    assert not done.failed
    return PredictionStore.existing(root / "store")


# --- the reference: dictionaries, loops and numpy ------------------------------------------------


@cache
def error(store, model, setting):
    right = store.test_set(setting).labels == store.read(model, setting)["class_1"].to_numpy()
    return 1.0 - right.mean()


@cache
def facts(store):
    """Model → what its records say of it."""
    return {record["model"]: record["info"] for record in store.cells()}


def runs_on(store, domain):
    """Run → its checkpoints (step, model), of the runs trained on a domain."""
    found = {}
    for model, about in facts(store).items():
        if about["training_data"] == f"pacs/{domain}":
            found.setdefault(about["run"], []).append((about["step"], model))
    return {run: sorted(some) for run, some in sorted(found.items())}


def last_networks(store, domain):
    return [checkpoints[-1][1] for checkpoints in runs_on(store, domain).values()]


def ranks(values):
    values = np.asarray(values)
    return np.array([(values < v).sum() + ((values == v).sum() + 1) / 2 for v in values])


def spearman(a, b):
    a, b = ranks(np.round(a, 12)), ranks(np.round(b, 12))
    if a.std() == 0 or b.std() == 0:
        return np.nan
    return float(((a - a.mean()) * (b - b.mean())).mean() / (a.std() * b.std()))


def residuals(y, x):
    x, y = np.asarray(x), np.asarray(y)
    slope = ((x - x.mean()) * (y - y.mean())).sum() / ((x - x.mean()) ** 2).sum()
    return y - y.mean() - slope * (x - x.mean())


def errors(store, source, target, models):
    found = {
        "id:error": [error(store, m, f"pacs/{source}/held-out") for m in models],
        "ood:error": [error(store, m, f"pacs/{target}/held-out") for m in models],
    }
    others = [d for d in DOMAINS if d not in (source, target)]
    found["held-out:error"] = [
        np.mean([error(store, m, f"pacs/{d}/held-out") for d in others]) for m in models
    ]
    found["corrupted:error"] = [
        np.mean(
            [
                error(store, m, f"pacs/{source}/held-out+{name}")
                for name in ("contrast:3", "gaussian_noise:3")
            ]
        )
        for m in models
    ]
    return {name: np.array(values) for name, values in found.items()}


def every_pair():
    return [(a, b) for a in DOMAINS for b in DOMAINS if a != b]


# --- what the package says -----------------------------------------------------------------------


def test_every_pair_has_the_networks_of_its_id_domain(store):
    pairs = {(p.source, p.target): p for p in open_pairs(store)}
    assert len(pairs) == 12
    for source, target in every_pair():
        pair = pairs[f"pacs/{source}/held-out", f"pacs/{target}/held-out"]
        models = last_networks(store, source)
        assert len(models) == 6
        assert sorted(pair.models) == sorted(models)
        expected = errors(store, source, target, pair.models)
        for name, values in expected.items():
            assert pair.column(name) == pytest.approx(values, abs=1e-12), name
        types = {"photo": "real"}
        ends = [types.get(d, "artificial") for d in (source, target)]
        assert pair.shift_type == " → ".join(ends)


def test_what_is_left_out_is_counted_by_pair(store):
    rows = sb.predictiveness(store, bootstrap=100).to_dict()["networks"]
    assert len(rows) == 12
    for row in rows:
        assert row["networks"] == 6
        left = {why: one["n"] for why, one in row["left_out"].items()}
        assert left == {
            "other checkpoints of the same runs": 4 * 6,
            "networks trained on other data": 3 * 6,
        }


def test_scores_and_adjusted_scores(store):
    found = {row["metric"]: row for row in sb.predictiveness(store).frame.to_dicts()}
    for metric in ("id:error", "held-out:error", "corrupted:error"):
        r, adjusted = [], []
        for source, target in every_pair():
            e = errors(store, source, target, last_networks(store, source))
            r.append(spearman(e[metric], e["ood:error"]))
            adjusted.append(spearman(e[metric], residuals(e["ood:error"], e["id:error"])))
        assert found[metric]["r"] == pytest.approx(np.nanmean(r), abs=1e-9)
        assert found[metric]["adjusted"] == pytest.approx(np.nanmean(adjusted), abs=1e-9)
        assert found[metric]["networks_most"] == 6


def test_scores_by_shift_type_and_size(store):
    by_type = sb.predictiveness(store, by="shift-type", bootstrap=100).frame
    for label in ("real → artificial", "artificial → real", "artificial → artificial"):
        ends = label.split(" → ")
        r = []
        for source, target in every_pair():
            if ["real" if d == "photo" else "artificial" for d in (source, target)] == ends:
                e = errors(store, source, target, last_networks(store, source))
                r.append(spearman(e["id:error"], e["ood:error"]))
        row = by_type.filter((pl.col("metric") == "id:error") & (pl.col("shift-type") == label))
        assert row["r"][0] == pytest.approx(np.nanmean(r), abs=1e-9)
        assert row["pairs"][0] == np.isfinite(r).sum()
    by_size = sb.predictiveness(store, by="data_size", bootstrap=100).frame
    sizes = {model: about["data_size"] for model, about in facts(store).items()}
    assert len(set(sizes.values())) == 2
    for size in set(sizes.values()):
        r = []
        for source, target in every_pair():
            some = [m for m in last_networks(store, source) if sizes[m] == size]
            e = errors(store, source, target, some)
            r.append(spearman(e["id:error"], e["ood:error"]))
        row = by_size.filter(metric="id:error", data_size=str(size))
        assert row["r"][0] == pytest.approx(np.nanmean(r), abs=1e-9)
        assert row["networks_most"][0] == 3


def test_difficulty(store):
    means = []
    for source, target in every_pair():
        e = errors(store, source, target, last_networks(store, source))
        means.append([1 - e["id:error"].mean(), 1 - e["ood:error"].mean()])
    own, other = np.mean(means, axis=0)
    row = sb.effects(store, show="difficulty").frame.row(0, named=True)
    assert row["id_accuracy"] == pytest.approx(own)
    assert row["gap"] == pytest.approx((own - other) / own)
    assert (row["pairs"], row["networks"]) == (12, 24)
    assert row["low"] < row["gap"] < row["high"]
    narrow = sb.effects(store, show="difficulty", unit="pair").frame.row(0, named=True)
    assert row["high"] - row["low"] >= narrow["high"] - narrow["low"]


@pytest.mark.parametrize("checkpoint", ["id-validation", "id-test"])
def test_chosen_checkpoints(store, checkpoint):
    part = "validation" if checkpoint == "id-validation" else "held-out"
    for pair in open_pairs(store, checkpoint=checkpoint):
        domain = pair.source.split("/")[1]
        wanted = []
        for checkpoints in runs_on(store, domain).values():
            lowest = [(error(store, m, f"pacs/{domain}/{part}"), s, m) for s, m in checkpoints]
            wanted.append(min(lowest)[2])
        assert sorted(pair.models) == sorted(wanted)
        assert pair.checkpoint == checkpoint
        assert sorted(len(left) for left in pair.left_out.values()) == [18, 24]
    said = sb.patterns(store, checkpoint=checkpoint, bootstrap=40)
    assert said.to_dict()["checkpoint"] == checkpoint
    assert any("checkpoint with the lowest ID" in note for note in said.notes)


def test_architectures_are_ranked_under_either_selection(store):
    about = facts(store)
    for select, part in (("id-validation", "validation"), ("id-test", "held-out")):
        found = sb.effects(store, show="architectures", select=select).frame.filter(task="all")
        expected = {}
        for source, target in every_pair():
            for name in {one["architecture"] for one in about.values()}:
                mine = [m for m in last_networks(store, source) if about[m]["architecture"] == name]
                scored = [error(store, m, f"pacs/{source}/{part}") for m in mine]
                chosen = mine[int(np.argmin(scored))]
                other = error(store, chosen, f"pacs/{target}/held-out")
                expected.setdefault(name, []).append(other)
        for row in found.iter_rows(named=True):
            assert row["ood_error"] == pytest.approx(np.mean(expected[row["architecture"]]))
        order = found.sort("rank")["architecture"].to_list()
        assert order == sorted(expected, key=lambda name: np.mean(expected[name]))


def test_effects_of_data_size_compare_networks_alike_in_all_else(store):
    about = facts(store)
    found = sb.effects(store, column="data_size", of=["full"], against=["few-shot-4"])
    rows = {row["metric"]: row for row in found.frame.to_dicts()}
    gaps = []
    for domain in DOMAINS:
        by_name = {}
        for model in last_networks(store, domain):
            side = by_name.setdefault(about[model]["architecture"], {})
            side[about[model]["data_size"]] = error(store, model, f"pacs/{domain}/held-out")
        gaps.append(np.mean([one["full"] - one["few-shot-4"] for one in by_name.values()]))
    row = rows["id:error"]
    assert (row["n"], row["networks"], row["unmatched"]) == (4, 12, 0)
    assert row["median"] == pytest.approx(np.median(gaps))
    assert row["p_value"] == pytest.approx(wilcoxon(gaps, alternative="less").pvalue)
    assert "Compared networks agree in architecture." in found.notes


def test_predictors_over_the_networks_of_each_shift(store):
    found = sb.predictors(store, bootstrap=0)
    assert len(found.aims) == 12 + 4  # the corruptions of a domain are its own networks' too
    for row in found.frame.filter(group="average").iter_rows(named=True):
        assert row["metric"] == row["ood"].split(" → ")[0]
        assert 0 < row["n"] <= 6
    assert {one["networks"] for one in found.to_dict()["networks"]} == {6}


def test_only_everywhere(store):
    narrow = {"only": ["data_size=few-shot-4"], "bootstrap": 100}
    metric = ["id:error", "ood:error", "id:nll", "ood:nll"]
    for study in (
        sb.predictiveness(store, **narrow),
        sb.factors(store, metric=metric, factors=1, **narrow),
        sb.patterns(store, **narrow),
        sb.effects(store, show="difficulty", **narrow),
    ):
        assert {row["networks"] for row in study.to_dict()["networks"]} == {3}
    assert sb.predictors(store, **narrow).frame["n"].max() == 3


def test_the_store_knows_what_chance_is(store):
    found = sb.patterns(store, bootstrap=100)
    assert found.frame["chance"].to_list() == [1 / 7] * 12
    assert not any("chance is unknown" in note for note in found.notes)
    assert sb.patterns(store, classes=5, bootstrap=100).frame["chance"][0] == 1 / 5


def test_the_worst_of_one_group_is_no_metric(store):
    """The images of a domain are one group: the error there is the error."""
    assert {*store.test_set("pacs/photo/held-out").groups} == {"photo"}
    assert not any("worst_group" in name for pair in open_pairs(store) for name in pair.metrics)


def test_upstream_errors_of_the_backbones_that_the_recipe_names(store):
    timm = sb.open_testbed("timm")
    rows = {
        "narrow": timm.model_index("resnet50.tv_in1k@224-0.875"),
        "middle": timm.model_index("resnet50.a1_in1k@224-0.95"),
    }
    error = {name: 1 - float(timm.accuracy("imagenet")[row]) for name, row in rows.items()}
    r = []
    for source, target in every_pair():
        some = [m for m in last_networks(store, source) if not m.startswith("wide")]
        e = errors(store, source, target, some)["ood:error"]
        r.append(spearman([error[m.partition("-")[0]] for m in some], e))
    found = sb.predictiveness(store, upstream="backbone", bootstrap=100).frame
    row = found.row(by_predicate=pl.col("metric") == "upstream:imagenet", named=True)
    assert row["r"] == pytest.approx(np.nanmean(r), abs=1e-9)
    assert row["networks_most"] == 4
    wanted = error["narrow"] - error["middle"]
    assert wanted > 0.03  # the two weights of one name are not alike


# --- lines judge the networks of their own ID data ------------------------------------------------


def test_a_domains_shifts_judge_the_networks_trained_on_it(store):
    """Networks that have seen the OOD domain are no robust ones; q-values are without them, too."""
    found = sb.rank(store, shift="pacs/photo-to-sketch")
    mine = [m for some in runs_on(store, "photo").values() for _, m in some]
    assert sorted(found.frame["model"]) == sorted(mine)
    p = found.frame["p_value"].to_numpy()
    assert found.frame["q_value"].to_numpy() == pytest.approx(false_discovery_control(p))
    assert any("36 models trained on its other domains left out" in n for n in found.notes)


def test_the_report_counts_them_alike(store):
    bed = sb.open_testbed(store)
    told = findings(bed, ["pacs/photo-to-sketch", "pacs/sketch-to-photo"], on_boundary="clip")
    assert dict(told.robustness.group_by("shift").len().iter_rows()) == {
        "pacs/photo-to-sketch": 12,
        "pacs/sketch-to-photo": 12,
    }
    assert "36 models trained on its other domains left out" in told.told[0].text


def test_models_of_other_data_than_the_tasks_are_judged(store):
    """A line through networks of one domain is for models from elsewhere; mixtures are told of."""
    bed = sb.open_testbed(store)
    others = {"pacs/cartoon": "imagenet", "pacs/art_painting": "pacs/photo+pacs/sketch"}
    data = bed.models["training_data"].replace(others)
    bed = replace(bed, models=bed.models.with_columns(training_data=data))
    shift = bed.shift("pacs/photo-to-sketch")
    told = judge(bed, [shift], on_boundary="clip").frame
    data = dict(zip(bed.model_names, bed.models["training_data"], strict=True))
    seen = {data[row["model"]]: row["artefact"] for row in told.iter_rows(named=True)}
    mixed = "trained on pacs/sketch itself"
    assert seen == {"pacs/photo": None, "imagenet": None, "pacs/photo+pacs/sketch": mixed}


@pytest.mark.slow
def test_every_chart_is_drawn_of_it_or_refused_for_a_reason(store, tmp_path):
    refused = {}
    for name in CHARTS:
        given = {"shift": "pacs/photo-to-sketch"} if name in ("scatter", "relative") else {}
        try:
            sb.plot(store, chart=name, output=tmp_path / f"{name}.svg", **given)
        except InputError as error:
            refused[name] = str(error)
    assert sorted(refused) == ["probes", "relative"]
    assert "no probes" in refused["probes"]
    assert "no model derived from another" in refused["relative"]
    assert {p.stem for p in tmp_path.glob("*.svg")} == set(CHARTS) - set(refused)


def test_heads_need_a_whole_network_beside_them(store):
    with pytest.raises(InputError, match="head"):
        sb.effects(store, show="head")
    found = sb.effects(store, show="difficulty")
    assert found.frame.height
    assert found.to_json()
