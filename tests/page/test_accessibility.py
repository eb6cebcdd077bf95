"""axe-core on every view of the page, of a testbed and of a store, light and dark, three widths."""

from importlib import resources
from pathlib import Path

import numpy as np
import pytest

import shiftbed as sb
from shiftbed.store import StoredTestSet, part_from_logits
from tests.page.conftest import Open
from tests.page.test_browser import VIEWS


@pytest.fixture(scope="module")
def of_a_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a store whose predictions allow every precomputed chart but probes."""
    folder = tmp_path_factory.mktemp("store")
    store, rng = sb.PredictionStore(folder / "store"), np.random.default_rng(0)
    for harder, setting in enumerate(("val", "other", *(f"val+fog:{i}" for i in range(1, 6)))):
        labels = rng.integers(0, 4, 200)
        names = tuple(map(str, range(200)))
        store.add_test_set(
            StoredTestSet(
                setting=setting, examples=names, labels=labels, fingerprint=setting, classes=4
            )
        )
        for i in range(24):
            for step in (50, 100):
                logits = rng.normal(0, 1, (200, 4))
                logits[np.arange(200), labels] += 0.4 + step / 100 + 0.05 * i - 0.1 * harder
                model = f"wide-{i:012x}@{step}"
                info = {"run": model.partition("@")[0], "step": step, "seed": i}
                store.write_part(model, setting, 0, part_from_logits(logits, labels))
                store.write_cell(model, setting, {"status": "complete", "info": info})
    shift = {"name": "other", "kind": "natural-dataset", "source": ["val"], "target": "other"}
    store.write_about({"name": "mine", "shifts": [shift]})
    sb.report(store, folder / "r.html")
    return folder / "r.html"


STUDIES = {"trajectories", "severities", "similarity", "predictiveness", "factors", "patterns"}


@pytest.mark.parametrize("width", [390, pytest.param(768, marks=pytest.mark.slow), 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("about", ["testbed", "store"])
def test_no_violation_of_accessibility(
    opened: Open, of_a_store: Path, width: int, scheme: str, about: str
) -> None:
    """axe-core finds nothing in any view, filters open, and no view is wider than the screen."""
    axe = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
    where = {"path": of_a_store} if about == "store" else {}
    page = opened("", color_scheme=scheme, **where)
    page.set_viewport_size({"width": width, "height": 844})
    page.evaluate(axe)
    views = page.eval_on_selector_all("#views [data-view]", "all => all.map(a => a.dataset.view)")
    assert {*views} >= ({*VIEWS} if about == "testbed" else {*STUDIES, "reliability"})
    for view in views:
        page.evaluate("view => shiftbed.show({ view })", view)
        page.eval_on_selector_all(
            "details:not(.table)", "all => all.forEach((one) => one.open = true)"
        )
        found = page.evaluate("axe.run({ resultTypes: ['violations'] })")["violations"]
        assert [(v["id"], v["nodes"][0]["html"]) for v in found] == [], view
        wide = page.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{view} is {wide} pixels wide"
