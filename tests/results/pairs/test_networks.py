"""A network is a finished run, and a pair is about networks trained on its ID data."""

import itertools

import numpy as np
import polars as pl
import pytest

from shiftbed.errors import InputError
from shiftbed.records import Shift
from shiftbed.results.pairs import open_pairs
from shiftbed.results.pairs.networks import CHECKPOINTS, OTHER_DATA, networks_of
from shiftbed.results.predictiveness import predictiveness
from shiftbed.testbed import Testbed

DOMAINS = ("photo", "art", "cartoon", "sketch")
PER_DOMAIN, STEPS = 12, (1, 2, 3)


def four_domains(seed: int = 0) -> Testbed:
    """Twelve runs per domain with three checkpoints each; better on their own domain."""
    rng = np.random.default_rng(seed)
    rows, value = [], []
    for domain, i in itertools.product(DOMAINS, range(PER_DOMAIN)):
        for step in STEPS:
            run = f"net-{domain}-{i}"
            rows.append((f"{run}@{step}", run, step, step == STEPS[-1], f"pacs/{domain}"))
            base = 0.4 + 0.1 * step + 0.02 * rng.random()
            value.append([base + (0.1 if d == domain else 0.0) for d in DOMAINS])
    schema = ["model", "run", "step", "final", "training_data"]
    models = pl.DataFrame(rows, schema=schema, orient="row").with_columns(
        pl.lit("standard").alias("kind"),
        pl.col("final").alias("in_fit_set"),
        pl.lit(None, dtype=pl.String).alias("parent"),
    )
    shifts = tuple(
        Shift(
            name=f"{a}-to-{b}",
            kind="natural-dataset",
            source=(a,),
            target=b,
            task="pacs",
            fit_on=f"training_data=pacs/{a}",
        )
        for a, b in itertools.permutations(DOMAINS, 2)
    )
    return Testbed(
        name="pacs",
        models=models,
        settings=DOMAINS,
        value=np.array(value),
        n=np.full((len(rows), 4), 500),
        shifts=shifts,
    )


def test_every_pair_has_the_finished_runs_on_its_own_id_domain() -> None:
    bed = four_domains()
    pairs = open_pairs(bed)
    assert len(pairs) == 12
    for pair in pairs:
        expected = {f"net-{pair.source}-{i}@3" for i in range(PER_DOMAIN)}
        assert set(pair.models) == expected
        assert {why: len(left) for why, left in pair.left_out.items()} == {
            CHECKPOINTS: 96,
            OTHER_DATA: 36,
        }
        assert not set(pair.models) & set(sum(pair.left_out.values(), ()))


def test_difficulty_is_the_gap_of_networks_on_their_own_data() -> None:
    """By symmetry the gap over all networks is 0; over those of the ID domain it is 0.1/acc."""
    bed = four_domains()
    gaps = []
    for pair in open_pairs(bed):
        right = 1 - pair.column("id:error"), 1 - pair.column("ood:error")
        gaps.append(np.mean((right[0] - right[1]) / right[0]))
    assert np.mean(gaps) == pytest.approx(0.1 / 0.81, rel=0.02)


def test_results_say_what_they_left_out() -> None:
    found = predictiveness(four_domains())
    assert any("96 other checkpoints" in note for note in found.notes)
    assert any("36 networks trained on other data" in note for note in found.notes)


def test_without_records_of_the_end_the_last_step_is_the_network() -> None:
    models = four_domains().models.drop("final")
    shift = Shift(name="s", kind="natural-dataset", source=("a",), target="b")
    mask, left_out = networks_of(models, shift)
    assert models.filter(pl.Series(mask))["step"].unique().to_list() == [3]
    assert [(why, len(left)) for why, left in left_out.items()] == [(CHECKPOINTS, 96)]


def test_models_of_no_run_are_networks() -> None:
    models = pl.DataFrame({"model": ["a", "b"], "run": [None, None], "step": [None, None]})
    shift = Shift(name="s", kind="natural-dataset", source=("a",), target="b", fit_on="model=a")
    mask, left_out = networks_of(models, shift)
    assert mask.tolist() == [True, True]  # fit_on asks for no training data
    assert not left_out


def test_files_count_networks_too(tmp_path) -> None:
    """The pairs of a testbed with all their checkpoints, written as a file, and read again."""
    bed = four_domains()
    known = {row["model"]: row for row in bed.models.to_dicts()}
    pairs = open_pairs(bed)
    rows = []
    for pair in pairs:
        for name, row in known.items():
            at = bed.model_names.index(name)
            about = {key: row[key] for key in ("run", "step", "final", "training_data")}
            errors = {
                "id:error": 1 - bed.accuracy(pair.source)[at],
                "ood:error": 1 - bed.accuracy(pair.target)[at],
            }
            ends = {"task": "pacs", "id": pair.source, "ood": pair.target}
            rows.append({**ends, "model": name, **errors, **about})
    for suffix, write in (
        (".csv", pl.DataFrame.write_csv),
        (".parquet", pl.DataFrame.write_parquet),
    ):
        path = tmp_path / f"pairs{suffix}"
        write(pl.DataFrame(rows), path)
        for own, read in zip(pairs, open_pairs(path), strict=True):
            assert read.models == own.models
            assert {why: len(left) for why, left in read.left_out.items()} == {
                CHECKPOINTS: 96,
                OTHER_DATA: 36,
            }
            assert np.allclose(read.values, own.values)


def test_a_checkpoint_is_chosen_or_the_choice_refused() -> None:
    bed = four_domains()
    for pair in open_pairs(bed, checkpoint="id-test"):
        for model in pair.models:
            run = model.partition("@")[0]
            others = [bed.accuracy(pair.source)[bed.model_names.index(f"{run}@{s}")] for s in STEPS]
            assert bed.accuracy(pair.source)[bed.model_names.index(model)] == max(others)
    with pytest.raises(InputError, match="has no id:validation_error"):
        open_pairs(bed, checkpoint="id-validation")
    with pytest.raises(InputError, match="has a run to choose from"):
        open_pairs("openclip", checkpoint="id-test")
    with pytest.raises(InputError, match="unknown checkpoint"):
        open_pairs(bed, checkpoint="best")
