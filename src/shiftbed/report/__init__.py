"""One offline page about a testbed: what was found in words and numbers, then the charts."""

from shiftbed.report.findings import Findings, findings
from shiftbed.report.page import write_report

__all__ = ["Findings", "findings", "write_report"]
