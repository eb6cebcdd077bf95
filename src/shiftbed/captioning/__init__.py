"""ID test sets from image–text pairs: classes named in captions, balanced, held out (shi2023)."""

from shiftbed.captioning.build import CaptionReport, captions
from shiftbed.captioning.classes import CaptionClass, read_classes
from shiftbed.captioning.match import AMBIGUOUS, NONE, Matcher, make_matcher

__all__ = [
    "AMBIGUOUS",
    "NONE",
    "CaptionClass",
    "CaptionReport",
    "Matcher",
    "captions",
    "make_matcher",
    "read_classes",
]
