"""Writes requirements.lock: every package that CI installs, by version and by the
hashes of the files that pip chose.

    python tools/lock.py         # `make lock`; for this system and version of Python, which are
                                 CI's
    python tools/lock.py --fits  # prints 1 where the file that is there is for this system and
                                 Python, else nothing

No index is named there: any that has the same files will do.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"


def resolved() -> list[tuple[str, str, str]]:
    """Name, version and sha256 of what pip would install for development."""
    with tempfile.TemporaryDirectory() as tmp:
        report = Path(tmp) / "report.json"
        wanted = ["--editable", f"{ROOT}[dev,docs]"]
        command = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
        ]
        subprocess.run([*command, "--report", str(report), *wanted], check=True)
        rows = json.loads(report.read_text())["install"]
    found = []
    for row in rows:
        about = row["metadata"]
        origin = row["download_info"]
        if "archive_info" in origin:  # all but this project
            found.append(
                (
                    about["name"].lower(),
                    about["version"],
                    origin["archive_info"]["hashes"]["sha256"],
                )
            )
    return sorted(found)


def main() -> None:
    """Writes the file."""
    lines = [
        f"{name}=={number} --hash=sha256:{digest}\n"
        for name, number, digest in resolved()
    ]
    LOCK.write_text(f"{_head()}\n" + "".join(lines))


def _head() -> str:
    """The first line of the file: what it is for."""
    version = ".".join(platform.python_version_tuple()[:2])
    return (
        f"# By make lock, for Python {version} on {sys.platform} {platform.machine()}"
    )


def fits() -> bool:
    """Whether the file is for this system and version of Python."""
    return LOCK.read_text().partition("\n")[0] == _head()


if __name__ == "__main__":
    if "--fits" in sys.argv[1:]:
        print("1" if fits() else "", end="")
    else:
        main()
