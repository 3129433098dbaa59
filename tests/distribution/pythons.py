"""The Pythons of this machine, and clean environments that see no source tree.

python -m tests.distribution.pythons FOLDER   # the packages that each of them needs, for
                                              # EDGEC_WHEELS (make test-wheels)
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HERE = f"{sys.version_info.major}.{sys.version_info.minor}"
HOST = ("3.11", "3.12", "3.13")
"""Pythons that edgec is for."""
DEVICE = ("3.9", "3.13")
"""The oldest Python that the runtime is for, and a new one."""


def find(version: str) -> Path | None:
    """The interpreter of a version, on the PATH or of pyenv; None: it is not here."""
    if version == HERE:
        return Path(sys.executable)
    named = shutil.which(f"python{version}")
    roots = Path.home() / ".pyenv" / "versions"
    found = [Path(named)] if named else []
    found += sorted(roots.glob(f"{version}.*/bin/python"))
    # A shim of pyenv is there also where its version is not chosen.
    return next((python for python in found if _is(python, version)), None)


def _is(python: Path, version: str) -> bool:
    said = "import sys; print('%d.%d' % sys.version_info[:2])"
    done = subprocess.run([python, "-c", said], capture_output=True, text=True)
    return done.returncode == 0 and done.stdout.strip() == version


def build(source: Path, folder: Path) -> Path:
    """The wheel that `pip wheel` makes of a source tree, without the index."""
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    _call([sys.executable, "-m", "pip", "wheel", *options, "-w", folder, source])
    (wheel,) = folder.glob("*.whl")
    return wheel


def environment(folder: Path, version: str, wheel: Path, needs: Sequence[str]) -> Path:
    """The Python of a new environment with a wheel and what it needs.

    Of this very Python the packages of the tests' environment are lent, where the
    source tree is not; those of others come from the folder EDGEC_WHEELS. Without them
    the test is skipped.

    needs: packages to lend; none: all.
    """
    python = find(version)
    if python is None:
        pytest.skip(f"no Python {version} on this machine")
    stored = os.environ.get("EDGEC_WHEELS")
    if version != HERE and stored is None:
        pytest.skip(
            f"no packages for Python {version}: make test-wheels downloads them"
        )

    made = folder / "bin" / "python"
    options = ["--quiet", "--no-index", "--no-warn-script-location"]
    if version == HERE:
        # The pip of the tests installs into it, so that it has nothing but the wheel.
        _call([python, "-m", "venv", "--without-pip", folder])
        pip = [sys.executable, "-m", "pip", f"--python={made}", "install"]
        _call([*pip, *options, "--no-deps", wheel])
        _lend(folder, needs)
    else:
        # An old Python needs a pip of its age, which it has.
        _call([python, "-m", "venv", folder])
        pip = [str(made), "-m", "pip", "install"]
        _call([*pip, *options, "--find-links", str(stored), wheel])
    return made


def _lend(folder: Path, needs: Sequence[str]) -> None:
    """Make packages of the tests' environment visible in another one."""
    own = Path(sysconfig.get_path("purelib"))
    (theirs,) = folder.glob("lib/python*/site-packages")
    if not needs:
        # A folder that a .pth file names is searched, but the .pth files in it, which
        # lead to the source tree, are not read.
        (theirs / "lent.pth").write_text(f"{own}\n")
    for need in needs:
        for path in own.glob(f"{need}*"):
            (theirs / path.name).symlink_to(path)


def clean(**more: str) -> dict[str, str]:
    """Environment variables that lead to no source tree."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return {**kept, "PYTHONNOUSERSITE": "1", "PYTHONDONTWRITEBYTECODE": "1", **more}


def _call(command: Sequence[str | Path]) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, env=clean())
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}{done.stderr}"


def download(folder: Path) -> None:
    """Fetch what the wheels need, for each Python that is here and is not this one."""
    wheel = build(ROOT, folder / "edgec")
    needed = {version: [str(wheel)] for version in HOST}
    for version in DEVICE:
        needed.setdefault(version, []).append("numpy")
    pip = [sys.executable, "-m", "pip", "download", "--quiet"]
    for version, packages in needed.items():
        if version != HERE and find(version) is not None:
            only = ["--only-binary=:all:", f"--python-version={version}"]
            _call([*pip, *only, "--dest", str(folder), *packages])


if __name__ == "__main__":
    target = Path(sys.argv[1])
    # Wheels of an earlier version would be installed in place of these.
    shutil.rmtree(target, ignore_errors=True)
    download(target)
