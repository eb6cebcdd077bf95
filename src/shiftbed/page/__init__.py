"""Pages: the report, one chart, a model card; written to files or served."""

from shiftbed.page.document import SUFFIXES, save
from shiftbed.page.findings import Findings, findings
from shiftbed.page.report import report_page, write_report

__all__ = ["SUFFIXES", "Findings", "findings", "report_page", "save", "write_report"]
