"""Builds a release from the last commit, the same bytes each time: make release

python -m tools.release [FOLDER]     FOLDER: a new one; default is build/release, which is
                                     made anew

Nothing is uploaded: docs/releasing.md says what a person does with the files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from edgec_devices.temporary import temporary_folder

from edgec.errors import EdgecError, InputError, ToolError
from tools.release.debian import ARCHITECTURE, NAME, runtime_package
from tools.release.sbom import sbom
from tools.release.source import ROOT, Source, changelog, check_out

SUMS = "SHA256SUMS"
_TEMPLATES = Path(__file__).parent
_DEFAULT = ROOT / "build" / "release"


def release(folder: Path) -> None:
    """Write all files of a release into an empty folder; raises InputError."""
    with temporary_folder("release") as name:
        source = check_out(name / "source")
        _write(folder / "CHANGELOG.md", changelog(source.version))
        _write(folder / f"edgec-{source.version}.cdx.json", sbom(source))
        _build_wheel(source, source.folder, folder)
        runtime = _build_wheel(source, source.folder / "runtime", name / "runtime")
        shutil.copy(runtime, folder)
        data = runtime_package(runtime.read_bytes(), source.version)
        (folder / f"{NAME}_{source.version}_{ARCHITECTURE}.deb").write_bytes(data)
        _fill("container", folder / "container", source.version, runtime)
        _fill("homeassistant", folder / "homeassistant/edgec", source.version, runtime)
        playbook = source.folder / "docs/examples/ansible"
        shutil.copytree(playbook, folder / "ansible")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    lines = []
    for path in files:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        lines.append(f"{digest}  {path.relative_to(folder)}\n")
    _write(folder / SUMS, "".join(lines))


def _build_wheel(source: Source, project: Path, folder: Path) -> Path:
    """Return the wheel of a project, built into a folder."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel"]
    folder.mkdir(exist_ok=True)
    before = set(folder.glob("*.whl"))
    done = subprocess.run(
        [*command, "-d", str(folder.resolve())],
        cwd=project,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(source.epoch)},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise ToolError(
            f"hatchling ended with {done.returncode}: {done.stderr.strip()}",
            at=project.name,
            hint="make setup installs it",
        )
    (wheel,) = set(folder.glob("*.whl")) - before
    return wheel


def _fill(template: str, folder: Path, version: str, wheel: Path) -> None:
    """Write a folder from a template, with the runtime's wheel in it."""
    folder.mkdir(parents=True)
    for path in sorted((_TEMPLATES / template).iterdir()):
        text = path.read_text(encoding="utf-8")
        text = text.replace("@VERSION@", version).replace("@WHEEL@", wheel.name)
        _write(folder / path.name, text)
    shutil.copy(wheel, folder)


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def main() -> int:
    """Build a release, and print its files; return the exit code."""
    try:
        folder = Path(sys.argv[1]) if sys.argv[1:] else _DEFAULT
        if folder == _DEFAULT:
            shutil.rmtree(folder, ignore_errors=True)
        elif folder.exists():
            raise InputError(
                f"{folder} is there already", hint="give the name of a new folder"
            )
        # Whoever unpacks or serves the folder can read it, whatever mask this user has.
        os.umask(0o022)
        folder.mkdir(parents=True)
        release(folder)
    except EdgecError as e:
        print(e, file=sys.stderr)
        return e.exit_code
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            print(f"{path.stat().st_size:>9}  {path.relative_to(folder)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
