"""What groups of models look like; ``page/web/looks.js`` has the same for the page.

Colours are close to Okabe and Ito's, told apart with any colour vision, and have a contrast of 3 or
more on white and on the page's dark paper; each group has a marker of its own besides, so that
figures survive printing in grey.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LINE = "#D55E00"
"""Colour of the fitted line, where there is one for all models."""
OTHER = "other"
"""Name of the group that gathers what has no colour of its own."""


@dataclass(frozen=True, kw_only=True)
class Style:
    """Colour, marker and legend text of a group."""

    label: str
    colour: str
    marker: str
    """matplotlib's name."""


_CYCLE = (
    ("#0072B2", "o"),
    ("#BE8300", "s"),
    ("#009E73", "^"),
    ("#CC79A7", "D"),
    ("#3A93CC", "v"),
    ("#8E63B8", "p"),
)
KINDS = {
    "standard": ("Standard training", 0),
    "intervention": ("Robustness intervention", 1),
    "more-data": ("Trained on more data", 2),
    "lp-adversarial": ("ℓₚ-adversarially trained", 3),
    "zero-shot": ("Zero-shot", 4),
}
OWN = "own"
"""Kind of the models a user adds."""
_FIXED = {
    OWN: Style(label="Own model", colour="#D81B60", marker="*"),
    OTHER: Style(label="Other", colour="#8C8C8C", marker="h"),
}
MOST = len(_CYCLE)
"""How many groups have a colour of their own."""


def styles(groups: Sequence[str]) -> dict[str, Style]:
    """The style of each group: a kind of model always has the same, others take what is free.

    >>> {name: style.colour for name, style in styles(["VGG16", "standard"]).items()}
    {'VGG16': '#BE8300', 'standard': '#0072B2'}
    """
    taken = {KINDS[group][1] for group in groups if group in KINDS}
    free = iter([i for i in range(MOST) if i not in taken])
    chosen = {}
    for group in groups:
        if group in _FIXED:
            chosen[group] = _FIXED[group]
            continue
        label, at = KINDS[group] if group in KINDS else (group, next(free))
        colour, marker = _CYCLE[at]
        chosen[group] = Style(label=label, colour=colour, marker=marker)
    return chosen


def looks(names: Sequence[str]) -> list[Style]:
    """A style for each of any number of names; they repeat, with another marker each time.

    Kinds of models have their own style, as everywhere.

    >>> [look.colour for look in looks("abcdefg")][::6]
    ['#0072B2', '#0072B2']
    >>> looks(["more-data"]) == [styles(["more-data"])["more-data"]]
    True
    """
    if names and all(name in KINDS or name == OWN for name in names):
        return list(styles(names).values())
    count = len(_CYCLE)
    return [
        Style(
            label=name,
            colour=_CYCLE[i % count][0],
            marker=_CYCLE[(i + i // count) % count][1],
        )
        for i, name in enumerate(names)
    ]


def trend_colours(trends: Sequence[str], groups: Sequence[str]) -> dict[str, str]:
    """Colours of lines by name, that of the group where "VGG16 line" is named after one.

    >>> trend_colours(["Line"], ["standard"]), trend_colours(["VGG16 line"], ["VGG16"])
    ({'Line': '#D55E00'}, {'VGG16 line': '#0072B2'})
    """
    looks = {f"{group} line": style.colour for group, style in styles(groups).items()}
    names = list(dict.fromkeys(trends))
    if len(names) == 1:
        return {names[0]: looks.get(names[0], LINE)}
    if all(name in looks for name in names):
        return {name: looks[name] for name in names}
    return {name: style.colour for name, style in styles(names).items()}
