"""The page: findings and charts as one HTML file that needs no network."""

import html
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from shiftbed.atomic import write_atomically
from shiftbed.figures.data import scatter
from shiftbed.figures.interactive import fragment, plotly_script
from shiftbed.report.findings import TRUSTED_R2, Findings, findings
from shiftbed.testbed.record import Testbed

__all__ = ["write_report"]

_STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.55 system-ui, sans-serif; color: #1d2129; background: #fff;
  max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
p.lead { font-size: 1.05rem; max-width: 60rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #e3e6ea; }
th:first-child, td:first-child, th.text, td.text { text-align: left; }
td:not(.text) { white-space: nowrap; }
th { border-bottom: 2px solid #8a919c; }
figure { margin: 1rem 0 3rem; } .chart { height: 38rem; }
figcaption, .small { color: #565d68; font-size: 13px; }
@media (max-width: 600px) { .chart { height: 26rem; } }
@media print { figure, table { break-inside: avoid; } }
"""


def write_report(
    testbed: Testbed,
    path: str | Path,
    *,
    shifts: Sequence[str] | None = None,
    fdr: float = 0.05,
    highlight: Sequence[str] = (),
) -> Findings:
    """Write the page, atomically, and return what it says."""
    found = findings(testbed, shifts, fdr=fdr)
    charts = [
        f"<h2>{_text(name)}</h2>"
        + fragment(scatter(testbed, name, highlight=highlight), f"chart-{i}")
        for i, name in enumerate(found.lines["shift"])
    ]
    page = f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; \
script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data: blob:">
<title>{_text(testbed.name)} – shiftbed</title>
<style>{_STYLE}</style>
<script>{plotly_script()}</script>
</head>
<body>
<h1>{_text(testbed.title or testbed.name)}</h1>
{_opening(testbed, found)}
<h2>Lines</h2>
{_lines(found)}
{_models(found)}
{"".join(charts)}
{_source(testbed)}
</body>
</html>
"""
    with write_atomically(path) as file:
        file.write(page.encode())
    return found


def _opening(testbed: Testbed, found: Findings) -> str:
    """The findings in words."""
    out = found.out_of_line
    count, shifts = out["model"].n_unique(), len(found.lines)
    models = "No model is" if count == 0 else "1 model is" if count == 1 else f"{count} models are"
    sentences = [
        f"{len(testbed.models)} models on {shifts} shift{'s' if shifts > 1 else ''}. "
        f"Each {testbed.line} goes through the baseline models only; effective robustness ρ is "
        "accuracy beyond it.",
        f"{models} out of line on at least one shift (unusual among baseline models, false "
        f"discovery rate {found.fdr:g}): {len(out)} of {len(found.robustness)} pairs of model and "
        "shift.",
    ]
    weak = found.lines.filter(~found.lines["trusted"])
    if len(weak):
        names = ", ".join(f"{r['shift']} (R² {r['r2']:.2f})" for r in weak.to_dicts())
        sentences.append(f"Lines not to be trusted, with R² below {TRUSTED_R2:g}: {names}.")
    sentences += [f"Not computed: {name} ({why})." for name, why in found.not_computed]
    if not found.robustness["paired"].all():
        sentences.append(
            "Intervals of ρ are conservative where only accuracies are known: images that models "
            "share count as independent."
        )
    return "".join(f'<p class="lead">{_text(s)}</p>' for s in sentences)


def _lines(found: Findings) -> str:
    rows = [
        (
            r["shift"],
            r["id"],
            r["ood"],
            r["n"],
            r["slope"],
            f"{r['r2']:.4f}",
            f"{100 * r['mae']:.2f}",
            found.robustness.filter(shift=r["shift"])["out_of_line"].sum(),
        )
        for r in found.lines.to_dicts()
    ]
    header = ["shift", "ID", "OOD", "n", "slope", "R²", "MAE (points)", "out of line"]
    return _table(header, rows, text=3)


def _models(found: Findings, most: int = 40) -> str:
    """The models out of line; all of them where the testbed is small."""
    whole = len(found.robustness) <= most
    out = found.robustness.sort("effective", descending=True) if whole else found.out_of_line
    rows = [
        (
            r["model"],
            r["kind"],
            r["shift"],
            f"{100 * r['source']:.2f}",
            f"{100 * r['target']:.2f}",
            f"{100 * r['effective']:+.2f}",
            "" if r["low"] is None else f"{100 * r['low']:+.2f} … {100 * r['high']:+.2f}",
            f"{r['q_value']:.4f}" if r["q_value"] >= 1e-4 else "<0.0001",
        )
        for r in out.head(most).to_dicts()
    ]
    title = "<h2>Models</h2>" if whole else "<h2>Models out of line</h2>"
    if not rows:
        return title + "<p>None.</p>"
    more = f'<p class="small">{most} of {len(out)}, by p-value.</p>' if len(out) > most else ""
    header = ["model", "kind", "shift", "ID", "OOD", "ρ", "95 % interval", "q"]
    return title + _table(header, rows, text=3) + more


def _source(testbed: Testbed) -> str:
    licence = f" ({testbed.licence})" if testbed.licence else ""
    text = f"{testbed.source}{licence}. {testbed.citation}" if testbed.source else testbed.citation
    return f'<h2>Source</h2><p class="small">{_text(text)}</p>' if text.strip() else ""


def _table(header: Sequence[str], rows: Iterable[Sequence[Any]], text: int) -> str:
    def row(cells: Sequence[Any], tag: str) -> str:
        marked = (
            f"<{tag}{' class=text' if i < text else ''}>{_text(cell)}</{tag}>"
            for i, cell in enumerate(cells)
        )
        return f"<tr>{''.join(marked)}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f'<div class="scroll"><table>{row(header, "th")}{body}</table></div>'


def _text(value: Any) -> str:
    return html.escape(str(value))
