"""The demo: where one model stands, who is out of line, and a report to open."""

import time
from pathlib import Path

import shiftbed as sb
from shiftbed.cli.main import app

OUT = Path("demo")


def command(*arguments: str) -> None:
    print("\n$ shiftbed", " ".join(arguments), flush=True)
    app(list(arguments), standalone_mode=False)


def main() -> None:
    start = time.perf_counter()
    OUT.mkdir(exist_ok=True)
    model = ("--id", "val=0.7613", "--ood", "imagenet-v2=0.6321")
    command("place", *model)
    command("rank", "--shift", "imagenet-v2", "--most", "5")
    command("plot", "--shift", "imagenet-v2", "-o", str(OUT / "imagenet-v2.png"))
    command("report", "imagenet-testbed-2020", "-o", str(OUT / "report.html"))
    testbed = sb.published("imagenet-testbed-2020")
    seconds = time.perf_counter() - start
    print(
        f"\n{len(testbed.models)} models, {len(testbed.shifts)} shifts, {seconds:.0f} s. "
        f"Open {OUT / 'report.html'} in a browser."
    )


if __name__ == "__main__":
    main()
