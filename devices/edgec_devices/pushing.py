"""Puts wheels on a device: the slim edgec-runtime, made here, and those that are given,
for example an interpreter.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Sequence
from pathlib import Path

import edgec_runtime

from edgec_devices import answers
from edgec_devices.bare import bare
from edgec_devices.package_index import download
from edgec_devices.protocol import Connection
from edgec_devices.transfer import Assembly, send_parts
from edgec_devices.wheel import Wheel

PYTHON = ">=3.9"
REQUIRES = "numpy>=1.21"  # as runtime/pyproject.toml says
_DATE = (1980, 1, 1, 0, 0, 0)
ADOPT_S = 300.0
_SERVING = (
    "agent",
    "incoming",
    "packed",
    "running",
    "showing",
    "slots",
    "units",
    "wheels",
    "wire",
)
"""Of the device end, what a Session never imports: the host sends it with each
connection.
"""


def runtime_wheel() -> Wheel:
    """The slim runtime, of the files that this program uses itself, without what only
    people read (bare.py).

    The same files give the same bytes.
    """
    version = edgec_runtime.__version__
    folder = Path(edgec_runtime.__file__).parent
    info = f"edgec_runtime-{version}.dist-info"
    paths = [
        p
        for p in runtime_sources(folder)
        if p.parent.name != "device_end" or p.stem not in _SERVING
    ]
    files = {f"edgec_runtime/{p.relative_to(folder)}": _slim(p) for p in paths}
    files["edgec_runtime/py.typed"] = b""
    metadata = (
        "Metadata-Version: 2.1\nName: edgec-runtime\nVersion: "
        f"{version}\nLicense: Apache-2.0\n"
    )
    files[f"{info}/METADATA"] = (
        f"{metadata}Requires-Python: {PYTHON}\nRequires-Dist: {REQUIRES}\n".encode()
    )
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: edgec\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    rows = [
        f"{name},sha256={_digest(data)},{len(data)}" for name, data in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
    return Wheel(f"edgec_runtime-{version}-py3-none-any.whl", made.getvalue())


def runtime_sources(folder: Path) -> list[Path]:
    """What of the runtime's folder runs on a device: Python and the webcam's page."""
    return sorted(p for p in folder.rglob("*") if p.suffix in (".py", ".html"))


def _slim(path: Path) -> bytes:
    if path.suffix == ".py":
        return bare(path.read_text(encoding="utf-8")).encode()
    return path.read_bytes()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def push(connection: Connection, app: str, wheels: Sequence[Wheel | str]) -> str:
    """Puts the runtime and these wheels on the device, those that it lacks; it uses
    them if all work together.

    What is given by its name comes from the package index, for the device's Python and
    processor, with what it requires.  The runtime is this edgec's, unless a wheel of it
    is among them (`edgec sign --runtime`).

    Returns what to say of it.  Raises InputError for a wheel of another kind of
    machine, before anything is sent, and what the device says; then it uses what it
    used before.
    """
    info, _ = connection.ask("info", answers.Info)
    files = [wheel for wheel in wheels if isinstance(wheel, Wheel)]
    for wheel in files:
        wheel.fits(info.target, info.python)
    files += download(
        [name for name in wheels if isinstance(name, str)], info.target, info.python
    )
    if not any(wheel.name.startswith("edgec_runtime-") for wheel in files):
        files.insert(0, runtime_wheel())
    recipes = [_recipe(wheel, app) for wheel in files]
    there, _ = connection.ask("site", answers.SiteAnswer, limit=ADOPT_S, app=app)
    sent = 0
    for wheel, recipe in zip(files, recipes, strict=True):
        if recipe.sha256 not in there.wheels:
            sent += send_parts(connection, recipe)[0]
            connection.ask(
                "unpack", answers.Done, wheel.signature, limit=ADOPT_S, app=app
            )
    done, _ = connection.ask(
        "adopt",
        answers.Adopted,
        limit=ADOPT_S,
        app=app,
        wheels=[r.sha256 for r in recipes],
    )
    return f"runtime {done.runtime}" + ("" if sent else " was there already")


def _recipe(wheel: Wheel, app: str) -> Assembly:
    sha256 = hashlib.sha256(wheel.data).hexdigest()
    return Assembly(wheel.data, sha256, ((0, len(wheel.data), sha256),), b"", app)


def has_runtime(connection: Connection, app: str) -> bool:
    """Whether the device can run the application with a Session."""
    return bool(
        connection.ask("site", answers.SiteAnswer, limit=ADOPT_S, app=app)[0].active
    )
