"""The command line: ``shiftbed COMMAND``. One thin function per command, in files by topic."""

import sys

try:
    from shiftbed.cli.main import app, main
except KeyboardInterrupt:  # before there is a command that could be stopped
    print("shiftbed: stopped", file=sys.stderr)
    sys.exit(130)

__all__ = ["app", "main"]
