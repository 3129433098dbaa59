"""The attacks of a manifest on native code: a library, and what a manifest says of it
that is not so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from edgec_runtime import BundleError, write_bundle
from edgec_runtime.device_end.bundles import machine_target

from tests.devices.attack_files import Case, Host
from tests.runtime import tiny_model
from tests.runtime.test_library import LIES

MADE_FOR = "what a library was made for"
HEADERS = "headers of a library"
ELSEWHERE = ("huge arena", "another segment")
"""Lies that something else refuses, too."""

_CHILD = """
import sys
from edgec_runtime import EdgecError, Session, noise_inputs
from edgec_runtime.model import library
if sys.argv[2]:
    setattr(library, sys.argv[2], lambda *_, **__: None)
try:
    with Session(sys.argv[1], tpu="c") as s:
        s.run(noise_inputs(s.manifest))
except EdgecError as e:
    print(e.what)
    sys.exit(9)
"""
_REFUSED = 9

taken_out = ""
"""The check of edgec_runtime.model.library that the child goes without; "": none."""


def lies() -> Iterator[Case]:
    """Run in processes of their own, which may not survive."""
    for name in LIES:
        if name not in ELSEWHERE:
            yield Case(f"a manifest's lie: {name}", (MADE_FOR,), partial(_lie, name))
    for part in (1, 3, 5):
        yield Case(
            f"a library of which {part} tenths are there",
            (HEADERS,),
            partial(_cut, part),
        )


def _lie(name: str, h: Host) -> None:
    manifest, files = tiny_model.parts(_library(h))
    LIES[name][0](manifest)
    write_bundle(h.root.parent.parent / "lie", manifest, files)
    _run(h.root.parent.parent / "lie")


def _cut(part: int, h: Host) -> None:
    manifest, files = tiny_model.parts(_library(h))
    path = manifest["libraries"][machine_target()]
    write_bundle(
        h.root.parent.parent / "lie",
        manifest,
        {**files, path: files[path][: len(files[path]) * part // 10]},
    )
    _run(h.root.parent.parent / "lie")


def _library(h: Host) -> Path:
    return tiny_model.build_library(h.root.parent.parent)


def _run(path: Path) -> None:
    """Raises BundleError where the child refused it."""
    env = {**os.environ, "EDGEC_CACHE": str(path.parent / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, path, taken_out],
        capture_output=True,
        text=True,
        env=env,
    )
    if done.returncode == _REFUSED:
        raise BundleError(done.stdout.strip(), hint="compile the model again")
