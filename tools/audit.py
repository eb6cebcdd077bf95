"""``make audit``: known vulnerabilities of what requirements.lock pins, by pip-audit.

pip-audit is fetched into an environment of its own. It asks a service of advisories: where that or
the index cannot be reached, one line says so (exit 1) and nothing is claimed.
"""

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

LOCK = Path(__file__).parents[1] / "requirements.lock"


def main() -> int:
    """pip-audit's report; its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder, "bin", "python"))
        fetched = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "pip-audit"], capture_output=True, text=True
        )
        if fetched.returncode:
            print("not audited: pip-audit cannot be fetched, no index is reachable")
            return 1
        asked = [python, "-m", "pip_audit", "--disable-pip", "--require-hashes", "-r", str(LOCK)]
        done = subprocess.run(asked, capture_output=True, text=True)
    if done.returncode not in (0, 1) or "Traceback" in done.stderr or "Error" in done.stderr:
        print("not audited: the service of advisories cannot be reached")
        return 1
    print(done.stdout + done.stderr, end="")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
