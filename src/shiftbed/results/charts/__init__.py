"""Results as finished charts: a testbed, a store or a finished table in, a chart record out.

Everything is computed here or below; ``shiftbed.figures`` only draws what comes out.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shiftbed.display import Result

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

        return draw(self.chart(**options), ax)
