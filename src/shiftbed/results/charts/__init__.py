"""Results as finished charts: a testbed, a store or a finished table in, a chart record out.

Everything is computed here or below; ``shiftbed.figures`` only draws what comes out.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from shiftbed.display import Result, readable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from shiftbed.figures.charts import Chart


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Charted(Result):
    """A result that has a chart."""

    @abstractmethod
    def chart(self) -> "Chart":
        """The chart as finished data, for ``plot`` and for files."""

    def plot(self, ax: "Axes | None" = None, **options: Any) -> "Axes":
        """Draw the chart onto matplotlib axes (default: a figure of its own) and return them.

        ``options`` are those of ``chart``, where it has a choice.
        """
        from shiftbed.figures import draw

        return draw(renamed(self.chart(**options), self.called), ax)


def renamed(made: "Chart", called: Mapping[str, str]) -> "Chart":
    """A chart with models of a recipe as people call them; ``models`` keeps their names."""
    from shiftbed.figures.charts import Chart, Curve

    if not called:
        return made

    def new(one: Any) -> Any:
        if isinstance(one, Chart):
            return renamed(one, called)
        if isinstance(one, Curve):
            return replace(one, name=readable(one.name, called))
        if isinstance(one, tuple):
            return tuple(map(new, one))
        return readable(one, called) if isinstance(one, str) else one

    kept = {one.name: getattr(made, one.name) for one in fields(made) if one.name != "models"}
    return replace(made, **{name: new(value) for name, value in kept.items()})
