"""What every benchmark shares: its two flags and how it prints."""

import argparse
import json
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[2] / "shared"


def arguments(what: str | None, *more: str) -> argparse.Namespace:
    """The flags; ``more`` are those of one benchmark, or an argument if there are no dashes."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--quick", action="store_true", help="under 40 seconds")
    parser.add_argument("--json", action="store_true", help="print JSON only")
    for flag in more:
        if flag.startswith("--"):
            parser.add_argument(flag, action="store_true")
        else:
            parser.add_argument(flag, nargs="?")
    return parser.parse_args()


def report(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    width = max(map(len, result))
    for key, value in result.items():
        shown = f"{value:.4g}" if isinstance(value, float) else value
        print(f"{key:<{width}}  {shown}")
