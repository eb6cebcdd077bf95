"""``make audit``: known vulnerabilities of what requirements.lock pins, by pip-audit.

pip-audit is fetched into an environment of its own. It asks a service of advisories: where that or
the index cannot be reached, or does not know the packages, one line says so (exit 1) and nothing is
claimed.
"""

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

LOCK = Path(__file__).parents[1] / "requirements.lock"


def judged(report: dict[str, Any]) -> tuple[int, str]:
    """Exit code and what to print of pip-audit's JSON.

    >>> judged({"dependencies": [{"name": "a", "version": "1", "vulns": []}]})
    (0, '1 package audited, no known vulnerabilities')
    >>> judged({"dependencies": [{"name": "a", "skip_reason": "not found"}]})
    (1, 'not audited: the service of advisories does not know a (1 of 1)')
    """
    packages = report["dependencies"]
    skipped = [one["name"] for one in packages if "skip_reason" in one]
    lines = [
        f"{one['name']} {one['version']}: {vuln['id']}, mended in "
        f"{', '.join(vuln.get('fix_versions', ())) or 'no release'}"
        for one in packages
        for vuln in one.get("vulns", ())
    ]
    if skipped:
        some = ", ".join(skipped[:3]) + (", …" if skipped[3:] else "")
        count = f"{len(skipped)} of {len(packages)}"
        lines.append(f"not audited: the service of advisories does not know {some} ({count})")
    if lines:
        return 1, "\n".join(lines)
    plural = "" if len(packages) == 1 else "s"
    return 0, f"{len(packages)} package{plural} audited, no known vulnerabilities"


def main() -> int:
    """pip-audit's findings; 0 if every package was audited and none has any."""
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
        done = subprocess.run([*asked, "--format", "json"], capture_output=True, text=True)
    try:
        code, said = judged(json.loads(done.stdout))
    except (ValueError, KeyError, TypeError):
        code, said = 1, "not audited: the service of advisories cannot be reached"
    print(said)
    return code


if __name__ == "__main__":
    sys.exit(main())
