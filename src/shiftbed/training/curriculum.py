"""Which examples are trained on when: easy ones phased out, or easy, hard and random in turn.

andreassen2021, Appendix C.9. Scores come from a file, larger is harder (``difficulty.py`` makes
one). What is trained on changes where an epoch begins; how many steps there are does not change.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from numpy.typing import NDArray

from shiftbed.errors import InputError
from shiftbed.evaluation.data.parts import ranked
from shiftbed.training.arguments import one_of, share, whole_number
from shiftbed.training.objective import Hook
from shiftbed.training.select import difficulty_rows, scores_of

if TYPE_CHECKING:
    from shiftbed.training.loop import Run
    from shiftbed.training.prepare import TrainingData


Rows = NDArray[np.int64]
Floats = NDArray[np.float64]
KEPT = ("all", "easiest", "hardest", "random")
_PHASE = re.compile(r"(?P<keep>[a-z]+)(:(?P<count>\d+))?(@(?P<share>\d*\.?\d+))?")


class _Curriculum(Hook):
    """What both have in common: they need the recipe's data, and perhaps a file of scores."""

    on_features = True
    scores: str | None

    def _data(self, run: "Run") -> tuple["TrainingData", Floats]:
        """The examples, and how hard each is; 0 without a file."""
        setup = run.known()
        if self.scores is None:
            return setup.data, np.zeros(len(setup.data))
        return setup.data, scores_of(Path(setup.base) / self.scores, setup.data.examples)


def examples_left(total: int, left: int, share: float, until: float) -> int:
    """How many of ``total`` examples are left when ``share`` of the steps is done.

    Falls linearly to ``left`` at ``until`` and stays there.
    """
    done = min(1.0, share / until)
    return round(total - (total - left) * done)


@final
class PhaseOut(_Curriculum):
    """All examples at first, then fewer and fewer of the easiest, until ``left`` are left.

    ``left`` hard ones remain from ``until`` of the steps on, and in the last epoch in any case.
    With ``per_class`` the classes shrink alike, and their numbers add up to the same total.
    """

    remembered = ("now",)

    def __init__(self, scores: str, left: int, until: float = 1.0, per_class: bool = False) -> None:
        self.scores, self.per_class = scores, per_class
        self.left = whole_number(left, "phase_out: left")
        self.until = share(until, "phase_out: until", "(0, 1]")
        self.now = 0

    def begin(self, run: "Run") -> None:
        data, hard = self._data(run)
        if self.left > len(data):
            raise InputError(f"phase_out: cannot leave {self.left} of {len(data)} examples")
        self.order = hardest_first(data, hard, per_class=self.per_class)
        self.now = self.now or len(data)

    def before_epoch(self, run: "Run") -> None:
        done = run.step / run.steps
        self.now = examples_left(len(self.order), self.left, done, self.until)
        if run.steps - run.step <= -(-self.now // run.stream.batch_size):
            self.now = self.left
        run.stream.keep(self.order[: self.now])

    def facts(self) -> dict[str, Any]:
        return {"examples_left": self.now}


def hardest_first(data: "TrainingData", hard: Floats, *, per_class: bool = False) -> Rows:
    """Rows from the hardest to the easiest; ``per_class``: by their rank within their class.

    Equal scores are ordered by a hash of the ids, so the order of rows does not matter.
    """
    order = ranked(data.examples, "phase-out")
    order = order[np.argsort(-hard[order], kind="stable")]
    if not per_class:
        return order
    labels = data.labels[order]
    place = np.empty(len(order))
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        place[own] = (np.arange(len(own)) + 0.5) / len(own)
    return order[np.argsort(place, kind="stable")]


@dataclass(frozen=True, kw_only=True)
class Phase:
    """From ``share`` of the steps on: ``count`` examples of every class, or all."""

    keep: str
    count: int | None
    share: float


def parse_phase(text: str) -> Phase:
    """A phase from ``KEEP[:COUNT][@SHARE]``.

    >>> parse_phase("hardest:500@0.5")
    Phase(keep='hardest', count=500, share=0.5)
    """
    match = _PHASE.fullmatch(str(text))
    if match is None:
        raise InputError(
            f"switch: expected KEEP:COUNT@SHARE such as 'hardest:500@0.5', got {text!r}"
        )
    keep, count = match["keep"], match["count"]
    one_of(keep, "examples to keep", KEPT)
    if (count is None) != (keep == "all") or count == "0":
        raise InputError(
            f"switch: easiest, hardest and random need a count, all has none: {text!r}"
        )
    begin = share(float(match["share"] or 0), f"switch: the share of steps in {text!r}", "[0, 1)")
    return Phase(keep=keep, count=None if count is None else int(count), share=begin)


@final
class Switch(_Curriculum):
    """Easy, hard, random or all examples in turn: ``phases = [["random:500", "hardest:500@0.5"]]``.

    COUNT is per class. A phase starts with the first epoch that begins at or after its share of the
    steps; the first phase must begin at 0.
    """

    remembered = ("current",)

    def __init__(self, phases: Sequence[str] | str, scores: str | None = None) -> None:
        texts = [phases] if isinstance(phases, str) else list(phases)
        self.phases = [parse_phase(text) for text in texts]
        shares = [phase.share for phase in self.phases]
        if not shares or shares[0] != 0 or sorted(set(shares)) != shares:
            raise InputError(f"switch: shares must begin at 0 and grow, got {shares}")
        if scores is None and any(p.keep in ("easiest", "hardest") for p in self.phases):
            raise InputError("switch: easiest and hardest need scores, a file")
        self.scores = scores
        self.current = -1

    def begin(self, run: "Run") -> None:
        data, hard = self._data(run)
        ids, labels, seed = data.examples, data.labels, run.known().seed
        self.rows = [
            np.arange(len(data))
            if one.count is None
            else difficulty_rows(ids, labels, hard, keep=one.keep, count=one.count, seed=seed)
            for one in self.phases
        ]

    def before_epoch(self, run: "Run") -> None:
        done = run.step / run.steps
        self.current = sum(phase.share <= done + 1e-12 for phase in self.phases) - 1
        run.stream.keep(self.rows[self.current])

    def facts(self) -> dict[str, Any]:
        return {} if self.current < 0 else {"phase": self.phases[self.current].keep}
