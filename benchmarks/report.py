"""The page in headless Chromium: its size, the time until it can be used, the time of each view.

    python -m benchmarks.report [--quick] [--json]

Three pages: the 2020 testbed (204 models × 252 settings), the published ImageNet testbeds joined
(2,220 models), and 10,000 simulated models. Time to interactive is what the browser itself measures
from the start of navigation to the end of the page's script, cold, the median over openings. A
drawing is the whole scatter painted once; a move is what the pointer costs on its way from point
to point. A view, a filter, a search and a sort are measured in the page from the change to the
finished drawing, the median of 7. Needs Debian's chromium and Playwright.
"""

import shutil
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shiftbed as sb
from benchmarks.common import arguments, report
from shiftbed.page.report import report as write_report
from shiftbed.testbed.combine import combine

DRAWING = """() => {
  const canvas = document.getElementById("scatter");
  const box = canvas.getBoundingClientRect();
  const median = (work) => {
    const times = [];
    for (let i = 0; i < 21; i++) {
      const start = performance.now();
      work(i);
      canvas.getContext("2d").getImageData(0, 0, 1, 1);
      times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b)[10];
  };
  const move = (clientX, clientY) =>
    canvas.dispatchEvent(new PointerEvent("pointermove", { clientX, clientY }));
  const hover = (i) => {
    move(box.left + box.width * (0.3 + 0.02 * i), box.top + box.height * (0.7 - 0.02 * i));
    move(box.left - 50, box.top - 50);
  };
  return [median(() => dispatchEvent(new Event("beforeprint"))), median(hover) / 2];
}"""


CHANGES = """([views]) => {
  const median = (work) => {
    const times = [];
    for (let i = 0; i < 7; i++) {
      const start = performance.now();
      work(i);
      const canvas = document.querySelector("main canvas");
      canvas?.getContext("2d").getImageData(0, 0, 1, 1);
      document.body.getBoundingClientRect();
      times.push(performance.now() - start);
    }
    return times.sort((a, b) => a - b)[3];
  };
  const show = shiftbed.show;
  const type = (text) => {
    const box = document.querySelector("[data-name=search]");
    box.value = text;
    box.dispatchEvent(new Event("input"));
  };
  const found = {};
  for (const view of views) {
    show({ view });
    if (document.body.dataset.ready === view) found[view] = median(() => show({ view }));
  }
  const kinds = (i) => JSON.stringify({ kind: [["standard"], ["intervention"]][i % 2] });
  show({ view: "scatter" });
  found["filter a scatter"] = median((i) => show({ filter: kinds(i) }));
  show({ filter: "" });
  found["search a scatter"] = median((i) => type(["res", "resn", "net 5", "simulated-12"][i % 4]));
  show({ view: "leaderboard", search: "" });
  found["filter a leaderboard"] = median((i) => show({ filter: kinds(i) }));
  show({ filter: "" });
  found["search a leaderboard"] = median((i) => type(["res", "resn", "net 5"][i % 3]));
  show({ search: "" });
  found["sort a leaderboard"] = median((i) => show({ order: ["OOD:down", "model:up"][i % 2] }));
  return found;
}"""
JOINED = ("imagenet-testbed-2020", "imagenet-testbed-2023", "timm", "openclip")
VIEWS = (
    "start", "leaderboard", "findings", "scatter", "multiples", "plane", "grid", "relative",
    "synthetic",
)  # fmt: skip


def simulated(models: int) -> sb.Testbed:
    """The 2020 testbed's first shift with that many models around its line."""
    base = sb.published("imagenet-testbed-2020")
    shift = base.shift("imagenet-v2")
    line = base.fit(shift, bootstrap=0)
    rng = np.random.default_rng(0)
    z = rng.normal(1.0, 0.5, models)
    heights = line.weights[0] * z + line.intercept + rng.normal(0, 0.05, models)
    value = 1 / (1 + np.exp(-np.stack([z, heights], axis=1)))
    frame = pl.DataFrame(
        {
            "model": [f"simulated-{i}" for i in range(models)],
            "kind": rng.choice(["standard", "intervention", "more-data"], models),
            "in_fit_set": rng.random(models) < 0.5,
            "parent": pl.Series([None] * models, dtype=pl.String),
        }
    )
    settings = (shift.source[0], shift.target)
    n = np.broadcast_to(np.array([50_000, 10_000]), value.shape).copy()
    return replace(
        base, name="simulated", title="", models=frame, settings=settings, value=value, n=n,
        shifts=(replace(shift, full_source=None),), derived={}, metrics={}, results={},
    )  # fmt: skip


def opened(browser: Any, path: Path, rounds: int) -> dict[str, float]:
    """Median time to interactive over cold openings, median times of what is done in the page."""
    times = []
    for _ in range(rounds):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(f"{path.as_uri()}#view=scatter")
        page.wait_for_selector("body[data-ready]")
        times.append(float(page.evaluate("document.documentElement.dataset.interactive")))
        drawing, move = page.evaluate(DRAWING)
        changes = page.evaluate(CHANGES, [VIEWS])
        context.close()
    return {
        "interactive_ms": statistics.median(times),
        "drawing_ms": float(drawing),
        "move_ms": float(move),
        **{f"{name}_ms": float(ms) for name, ms in changes.items()},
    }


def main() -> None:
    options = arguments(__doc__)
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("needs Debian's package chromium")
    from playwright.sync_api import sync_playwright

    rounds = 3 if options.quick else 9
    sources = {
        "imagenet-testbed-2020": sb.published("imagenet-testbed-2020"),
        "joined": combine([sb.published(name) for name in JOINED]),
        "10,000 simulated": simulated(10_000),
    }
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name, bed in sources.items():
            path = Path(folder) / "report.html"
            write_report(bed, path)
            found[f"{name}: megabytes"] = path.stat().st_size / 1e6
            for what, value in opened(browser, path, rounds).items():
                found[f"{name}: {what}"] = value
        browser.close()
    report({"rounds": rounds, **found}, options.json)


if __name__ == "__main__":
    main()
