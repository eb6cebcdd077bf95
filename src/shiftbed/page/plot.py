"""``plot``: any chart of a testbed or a store, onto axes or into a file."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shiftbed import figures
from shiftbed.errors import InputError
from shiftbed.page.document import check_suffix, save
from shiftbed.records import Shift
from shiftbed.results import plot as charts
from shiftbed.results.sources import Results, joined
from shiftbed.store import PredictionStore
from shiftbed.testbed import Testbed
from shiftbed.testbed.select import Choice

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot(
    source: str | Path | Testbed | PredictionStore = "imagenet-testbed-2020",
    shift: str | Shift | None = None,
    *,
    chart: str = "scatter",
    id: Sequence[str] | None = None,
    ood: str | None = None,
    output: str | Path | None = None,
    ax: "Axes | None" = None,
    scale: str = "logit",
    fit_on: Choice = None,
    threshold: float | None = None,
    full_id: bool = False,
    knee: float | str | None = "published",
    on_boundary: str = "raise",
    by: str | None = None,
    colour: str | None = None,
    highlight: Sequence[str] = (),
    label: int = 6,
    level: float = 0.995,
    only: Choice = None,
    models: Sequence[str] = (),
    run: Sequence[str] = (),
    against: str | None = None,
    all: bool = False,
    draw: str | None = None,
    over: str | None = None,
    column: str | None = None,
    of: Sequence[str] = (),
    xlim: tuple[float, float] | None = None,
    ylim: tuple[float, float] | None = None,
    others: Sequence[Results] = (),
    style: str | None = None,
    dpi: int | None = None,
) -> "Axes | Path":
    """Draw a shift (models with error bars, the line with its band, y = x), or another chart.

    ``chart`` is one of ``shiftbed.results.plot.CHARTS``; two ID settings ``id`` and an ``ood``
    one make a plane. Drawn onto ``ax``, or a figure of pyplot's, the axes are returned; with
    ``output``, a .png (``dpi``, 300), .svg, .pdf or interactive .html file, its path. ``style`` is
    ``paper``, ``column`` or ``columns`` (as wide as one or two of a paper's) or ``slides``.
    ``highlight`` names models to mark, ``label`` says how many of those
    out of line are named, ``level`` is that of error bars; ``scale`` to ``by`` choose the fit as
    for ``fit``. ``only`` and ``models`` narrow which models are drawn (by column or by name),
    ``run`` which runs of trajectories, ``xlim`` and ``ylim`` between which accuracies; none of them
    changes the fit. ``against`` is the other shift of a synthetic chart; ``all`` draws the whole
    grid, every model in every setting. ``draw`` says which drawing, where a chart has several: of
    a scatter ``scaled`` or ``linear`` axes, of a plane ``space`` or ``projections``, of
    trajectories ``rho``, ``share`` or ``largest`` (by the column ``over``), of similarity
    ``dominance`` or ``triplets``, of predictiveness ``matrix``, ``scores`` (``by`` task, shift-type
    or a column) or ``transfer``, of patterns ``counts`` or ``scatters``, of effects
    ``architectures``, ``difficulty``, ``differences`` or ``head``, the last two of networks whose
    ``column`` is ``of`` with those where it is ``against``. ``others`` are further testbeds, stores
    or files of results whose models are drawn too. An option that a chart cannot honour is
    refused.
    """
    given = locals()
    options = {name: given[name] for name in charts.DEFAULTS}
    if output is not None:
        suffix = check_suffix(output)
        if ax is not None:
            raise InputError("give output, a file to write, or ax, axes to draw onto, not both")
        if style is not None and suffix == ".html":
            raise InputError("style is for .png, .svg and .pdf, not for an interactive .html")
    if dpi is not None and (output is None or suffix != ".png"):
        raise InputError("dpi is for a .png output only")
    if style is not None and output is None:
        raise InputError("style is for an output file; axes have matplotlib's own")
    made = charts.chart(
        joined(source, others) if others else source, chart, shift, id=id, ood=ood, **options
    )
    if output is None:
        return figures.draw(made, ax)
    save(made, output, dpi=dpi or 300, style=style or "paper")
    return Path(output)
