"""The command line: ``shiftbed COMMAND``. One thin function per command, in files by topic."""

from shiftbed.cli.main import app, main

__all__ = ["app", "main"]
