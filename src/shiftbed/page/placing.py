"""What the page needs to place a model by itself, exactly as ``place`` does.

ρ, its interval and its p-value are functions of four numbers (two accuracies, two sizes) once the
line is fitted, so a record per line has all that does not depend on them: the coefficients, with
and without attenuation, the covariance of the line, what another baseline model scatters, and how
the model's own image noise goes with the line's. The last is a table over the nodes of
``analysis.modelled``: a model is a mixture of the two nodes beside it. ``web/place.js`` does the
rest; a test in a browser compares both.
"""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from shiftbed.analysis.baseline import Baseline, Line
from shiftbed.analysis.intervals import off_boundary
from shiftbed.analysis.modelled import NODES, WIDEST, Modelled
from shiftbed.analysis.noise import JointNoise, joint_noise
from shiftbed.analysis.robustness import independent_errors, place_on
from shiftbed.analysis.scatter import line_tails
from shiftbed.analysis.trust import Trust
from shiftbed.catalogue import identity
from shiftbed.errors import InputError
from shiftbed.page.findings import Findings
from shiftbed.records import Shift
from shiftbed.results.caveats import judge, line_caveats
from shiftbed.testbed.judging import flags_of, modelled_noise, positions
from shiftbed.testbed.record import Testbed

Floats = NDArray[np.float64]


def placing(testbed: Testbed, found: Findings) -> dict[str, Any]:
    """Lines that a typed model can be placed on, and other names of their settings.

    For each shift that was judged its own line, and that on the whole ID set where its own is a
    class twin.
    """
    lines: list[dict[str, Any]] = []
    for shift, line, trust in found.judged:
        if len(shift.source) > 1:
            continue
        p_values = found.robustness.filter(shift=shift.name)["p_value"].drop_nulls().to_numpy()
        lines.append(_record(testbed, shift, line, trust, p_values))
        if shift.full_source is not None:
            lines += _whole(testbed, shift.on_full_source(), found)
    named = sorted({name for one in lines for name in (one["source"], one["target"])})
    return {
        "level": found.level,
        "fdr": found.fdr,
        "lines": lines,
        "names": {testbed.settings[s]: _names(testbed.settings[s]) for s in named},
    }


def _whole(testbed: Testbed, shift: Shift, found: Findings) -> list[dict[str, Any]]:
    try:
        judged = judge(
            testbed, [shift], level=found.level, fdr=found.fdr, on_boundary=found.on_boundary
        )
    except InputError:
        return []
    p_values = judged.frame["p_value"].drop_nulls().to_numpy()
    return [_record(testbed, *judged.lines[0], p_values)]


def _names(setting: str) -> list[str]:
    """What else a setting may be called."""
    known = identity(setting)
    return [] if known is None else [known.name, known.title, *known.names, *known.weak]


def _record(
    testbed: Testbed, shift: Shift, line: Baseline, trust: Trust, p_values: Floats
) -> dict[str, Any]:
    source, target = shift.source[0], shift.target
    images = modelled_noise(testbed, line)
    return {
        "shift": shift.name,
        "source": testbed.setting_index(source),
        "target": testbed.setting_index(target),
        "usual": [testbed.usual_size(source), testbed.usual_size(target)],
        "sizes": line.sizes,
        "support": line.support[0],
        "scale": line.scale.name,
        "n": line.n,
        "r2": line.r2,
        "trusted": trust.trusted,
        "caveats": line_caveats(testbed, shift, line, trust),
        "flags": flags_of(line, min(line_tails(piece).nu for piece in line.lines), False),
        "modelled": images is not None,
        "pieces": [_piece(testbed, line, piece, images) for piece in line.lines],
        "p": [float(f"{p:.10g}") for p in np.sort(p_values)],
    }


def _piece(
    testbed: Testbed, line: Baseline, piece: Line, images: Modelled | None
) -> dict[str, Any]:
    noise = _errors(testbed, line, piece, images)
    tails, families = line_tails(piece), piece.families
    if families is None:
        scatter, pull = piece.sigma**2, piece.sigma**2 * piece.gram_inverse
        dof: Sequence[float] = (piece.dof,)
    else:
        scatter, pull = families.variance, families.covariance
        dof = (families.variance_dof, families.dof)
    return {
        "low": piece.low,
        "coefficients": piece.coefficients,
        "corrected": noise.coefficients,
        "fit": noise.fit_covariance,
        "fit_dof": piece.covariance_dof,
        "line_noise": noise.line_noise,
        "residual": piece.sigma**2 - noise.scatter**2,
        "mixed": None if images is None else [_digits(one) for one in noise.mixed],
        "scatter": scatter,
        "pull": pull,
        "dof": dof,
        "nu": tails.nu,
        "width": tails.width,
    }


def _errors(testbed: Testbed, line: Baseline, piece: Line, images: Modelled | None) -> JointNoise:
    """Errors of ρ of imagined models at every node, with accuracies that have a variance of 1."""
    at = ndtr(np.linspace(-WIDEST, WIDEST, NODES))
    if images is None:
        sizes = np.zeros(NODES)
        placed = place_on(piece, line.scale, at[:, None], at, sizes[:, None], sizes)
        return independent_errors(piece, line.scale, placed)
    rows = np.flatnonzero(np.isin(positions(testbed, line), piece.fitted))
    rows = rows[np.argsort(positions(testbed, line)[rows])]
    nodes = np.repeat(np.minimum(np.arange(NODES), NODES - 2)[:, None], 2, axis=1)
    part = np.zeros((NODES, 2))
    part[-1] = 1.0
    kept = {f.name: getattr(images, f.name) for f in fields(images)}
    both = {"spread": np.ones((NODES, 2)), "node": nodes, "part": part}
    kept |= {name: np.vstack([kept[name][rows], one]) for name, one in both.items()}
    x, y = (
        np.concatenate([off_boundary(testbed.accuracy(s)[rows], testbed.size(s)[rows]), at])
        for s in (line.id_settings[0], line.ood_setting)
    )
    judged = np.arange(len(rows), len(rows) + NODES)
    return joint_noise(
        piece, line.scale, x[:, None], y, judged, np.arange(len(rows)), Modelled(**kept)
    )


def _digits(values: Floats) -> list[list[float]]:
    """Fourteen digits: the page's ρ agrees to more than it can be told apart by."""
    return [[float(f"{v:.14g}") for v in row] for row in values.tolist()]
