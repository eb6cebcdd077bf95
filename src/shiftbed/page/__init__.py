"""Pages: the report, one chart, a model card; written to files or served."""

from shiftbed.page.document import SUFFIXES, save

__all__ = ["SUFFIXES", "save"]
