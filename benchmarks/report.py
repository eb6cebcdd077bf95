"""The page in headless Chromium: its size, the time until it can be used, the time of each view.

    python -m benchmarks.report [--quick] [--json]

Three pages: the 2020 testbed (204 models × 252 settings), four published testbeds joined (2,329
models) and 10,000 simulated models on nine shifts. Time to interactive is what the browser itself
measures from the start of navigation to the end of the page's script, cold, the median over
openings. A drawing is the whole scatter painted once; a move is what the pointer costs on its way
from point to point. Every view that the page offers, a filter, a search and a sort are measured in
the page from the change to the finished drawing of what is on the screen: the first time (after
opening, nothing computed yet) and the median of 7 more, by the clock and in CPU time of the page's
own thread, which other work on the machine does not lengthen. The slowest are printed last.
Also the CPU time of ``report`` itself for 300 models on nine shifts: of a testbed, and of a store
of 2,000 predictions per cell with probabilities. Needs Debian's chromium and Playwright.
"""

import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import shiftbed as sb
from benchmarks.common import arguments, report
from shiftbed.page.report import report as write_report
from shiftbed.records import NATURAL
from shiftbed.store import PredictionStore, StoredTestSet, part_from_logits
from shiftbed.store.compact import compact
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


CHANGES = """() => {
  const show = shiftbed.show;
  const type = (text) => {
    const box = document.querySelector("[data-name=search]");
    box.value = text;
    box.dispatchEvent(new Event("input"));
  };
  const kinds = (i) => JSON.stringify({ kind: [["standard"], ["intervention"]][i % 2] });
  const words = ["res", "resn", "net 5", "simulated-12"];
  const orders = ["OOD:down", "model:up"];
  const clear = { filter: "", search: "", order: "" };
  const views = [...document.querySelectorAll("#views [data-view]")].map((a) => a.dataset.view);
  const changes = Object.fromEntries(views.map((view) => [view, [{}, () => show({ view })]]));
  for (const view of ["scatter", "leaderboard"]) {
    changes[`filter a ${view}`] = [{ view, ...clear }, (i) => show({ filter: kinds(i) })];
    changes[`search a ${view}`] = [{ view, ...clear }, (i) => type(words[i % 4])];
  }
  const board = { view: "leaderboard", ...clear };
  changes["sort a leaderboard"] = [board, (i) => show({ order: orders[i % 2] })];
  const settled = () => new Promise((done) => setTimeout(() => setTimeout(done)));
  globalThis.changing = async (name, i) => {
    const start = performance.now();
    changes[name][1](i);
    await settled();
    const canvas = document.querySelector("main canvas");
    canvas?.getContext("2d").getImageData(0, 0, 1, 1);
    document.body.getBoundingClientRect();
    return performance.now() - start;
  };
  globalThis.before = (name) => show(changes[name][0]);
  return Object.keys(changes);
}"""
JOINED = ("imagenet-testbed-2020", "robustnets-2022", "timm", "openclip")
SHIFTS = 9


def simulated(models: int) -> sb.Testbed:
    """The 2020 testbed's first natural shifts, corruptions, and models around their lines."""
    base = sb.published("imagenet-testbed-2020")
    rng = np.random.default_rng(0)
    z = rng.normal(1.0, 0.5, models)
    natural = [s for s in base.shifts if s.kind in NATURAL and len(s.source) == 1 and not s.knee]
    made = [s for s in base.shifts if s.kind == "corruption" and len(s.source) == 1]
    chosen = [replace(s, full_source=None) for s in (*natural[: SHIFTS - 2], *made[:2])]
    logits = {name: z + rng.normal(0, 0.03, models) for s in chosen for name in s.source}
    for shift in chosen:
        line = base.fit(shift, bootstrap=0).lines[0]
        ideal = line.weights[0] * logits[shift.source[0]] + line.intercept
        logits[shift.target] = ideal + rng.normal(0, 0.05, models)
    value = 1 / (1 + np.exp(-np.stack(list(logits.values()), axis=1)))
    names = [f"simulated-{i}" for i in range(models)]
    frame = pl.DataFrame(
        {
            "model": names,
            "kind": rng.choice(["standard", "intervention", "more-data"], models),
            "in_fit_set": rng.random(models) < 0.5,
            "parent": [None, *(names[i // 2] for i in range(1, models))],
            "parameters": rng.lognormal(17, 1, models).round(),
        }
    )
    return replace(
        base, name="simulated", title="", models=frame, settings=tuple(logits), value=value,
        n=np.full(value.shape, 10_000), shifts=tuple(chosen), derived={}, metrics={}, results={},
    )  # fmt: skip


def simulated_store(folder: Path, models: int, images: int) -> PredictionStore:
    """Logits of ten classes in an ID setting and nine others, in the files that ``run`` leaves."""
    rng, store = np.random.default_rng(0), PredictionStore(folder)
    skill = rng.normal(1.0, 0.5, models)
    settings = ["val", *(f"ood-{i}" for i in range(SHIFTS))]
    for k, setting in enumerate(settings):
        labels, hard = rng.integers(0, 10, images), rng.normal(size=images) + 0.2 * k
        store.add_test_set(
            StoredTestSet(
                setting=setting,
                examples=tuple(map(str, range(images))),
                labels=labels,
                fingerprint=setting,
                classes=10,
            )
        )
        for i in range(models):
            logits = rng.normal(size=(images, 10))
            logits[np.arange(images), labels] += 2 * skill[i] - hard + rng.normal(0, 0.1)
            store.write_parts(
                (f"m{i}", setting, a, part_from_logits(logits[a : a + 1024], labels[a : a + 1024]))
                for a in range(0, images, 1024)
            )
        store.write_cells((f"m{i}", setting, {"status": "complete"}) for i in range(models))
    shifts = [
        {"name": s, "kind": "natural-dataset", "source": ["val"], "target": s} for s in settings[1:]
    ]
    store.write_about({"name": "simulated", "shifts": shifts})
    compact(store)
    return store


def changed(page: Any) -> dict[str, float]:
    """Times of every change, the first and the median of 7, by the clock and of the page's CPU."""
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})

    def cpu() -> float:
        metrics = cdp.send("Performance.getMetrics")["metrics"]
        return next(1000 * float(m["value"]) for m in metrics if m["name"] == "TaskDuration")

    found: dict[str, float] = {}
    for name in page.evaluate(CHANGES):
        page.evaluate("name => before(name)", name)
        times = []
        for i in range(8):
            start = cpu()
            wall = page.evaluate("([name, i]) => changing(name, i)", [name, i])
            times.append((float(wall), cpu() - start))
        for k, unit in enumerate(("ms", "cpu_ms")):
            found[f"{name}, first_{unit}"] = times[0][k]
            found[f"{name}_{unit}"] = statistics.median(one[k] for one in times[1:])
    for unit in ("ms", "cpu_ms"):
        mine = {k: v for k, v in found.items() if k.endswith(f"_{unit}")}
        mine = {k: v for k, v in mine.items() if ("_cpu_" in k) == (unit == "cpu_ms")}
        for when in (", first", ""):
            some = [v for k, v in mine.items() if (", first" in k) == bool(when)]
            found[f"slowest{when}_{unit}"] = max(some)
    return found


def cpu_of_report(source: Any, path: Path) -> float:
    start = time.process_time()
    write_report(source, path)
    return time.process_time() - start


def opened(browser: Any, path: Path, rounds: int) -> dict[str, float]:
    """Median time to interactive over cold openings, median times of what is done in the page."""
    times = []
    for _ in range(rounds):
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto(f"{path.as_uri()}#view=scatter")
        page.wait_for_selector("body[data-ready]")
        times.append(float(page.evaluate("document.documentElement.dataset.interactive")))
        if len(times) == rounds:
            drawing, move = page.evaluate(DRAWING)
            changes = changed(page)
        context.close()
    return {
        "interactive_ms": statistics.median(times),
        "drawing_ms": float(drawing),
        "move_ms": float(move),
        **changes,
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
            found[f"{name}: models"] = len(bed.models)
            found[f"{name}: megabytes"] = path.stat().st_size / 1e6
            for what, value in opened(browser, path, rounds).items():
                found[f"{name}: {what}"] = value
        browser.close()
        small = simulated_store(Path(folder) / "store", 300, 500 if options.quick else 2000)
        for name, source in (("testbed", simulated(300)), ("store", small)):
            found[f"report of a {name}, 300 × 9: CPU seconds"] = cpu_of_report(source, path)
    report({"rounds": rounds, **found}, options.json)


if __name__ == "__main__":
    main()
