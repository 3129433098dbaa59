"""Puts wheels on a device: the slim edgec-runtime, built here, and others.

Another wheel is, for example, an interpreter.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import edgec_runtime
from edgec_runtime.device_end.requests import (
    ADOPT,
    INFO,
    SITE,
    UNPACK,
    AdoptRequest,
    AppRequest,
    Empty,
)

from edgec_devices.minify import bare
from edgec_devices.package_index import download
from edgec_devices.protocol import Connection
from edgec_devices.transfer import Assembly, send_parts
from edgec_devices.wheel import Wheel

PYTHON = ">=3.9"
REQUIRES = "numpy>=1.21"
"""The requirement of runtime/pyproject.toml."""
SENT_SUFFIXES = (".py", ".html", ".json", ".png")
"""Endings of the runtime's files that run on a device: the C does not."""
ZIP_DATE = (1980, 1, 1, 0, 0, 0)
"""The earliest date of a zip file: the same files give the same bytes."""
ADOPT_S = 300.0
"""Limit of installing wheels on a device, s."""
SENT_MODULES = (
    "agent",
    "reception",
    "single_file",
    "programs",
    "remote_show",
    "serving",
    "slots",
    "units",
    "wheels",
    "wire",
)
"""Modules of the device end that a Session never imports: the host sends them with each
connection.
"""


def runtime_wheel() -> Wheel:
    """Build the slim runtime from the files that this program uses itself.

    It has no docstrings and comments (minify.py). The same files give the same bytes.
    """
    version = edgec_runtime.__version__
    folder = Path(edgec_runtime.__file__).parent
    info = f"edgec_runtime-{version}.dist-info"
    files = {}
    for path in runtime_sources(folder):
        if path.parent.name == "device_end" and path.stem in SENT_MODULES:
            continue
        files[f"edgec_runtime/{path.relative_to(folder)}"] = _slim(path)
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

    # The record lists itself without a digest, as the wheel format says.
    rows = []
    for name, data in files.items():
        rows.append(f"{name},sha256={_digest(data)},{len(data)}")
    rows += [f"{info}/RECORD,,", ""]
    files[f"{info}/RECORD"] = "\n".join(rows).encode()
    return Wheel(f"edgec_runtime-{version}-py3-none-any.whl", _zip(files))


def _zip(files: Mapping[str, bytes]) -> bytes:
    """Return a zip file with nothing in it that depends on this machine."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, ZIP_DATE)
            # 3 is Unix, whatever this machine is; the mode is in its upper 16 bits.
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            # Each message is compressed as a whole (wire.py), which makes files that
            # resemble each other a tenth smaller than compressing each by itself.
            archive.writestr(entry, data, zipfile.ZIP_STORED)
    return out.getvalue()


def runtime_sources(folder: Path) -> list[Path]:
    """Return the files of the runtime's folder that run on a device.

    They are Python, the page of the webcam, and what its effects draw.
    """
    return sorted(p for p in folder.rglob("*") if p.suffix in SENT_SUFFIXES)


def _slim(path: Path) -> bytes:
    """Return a file of the runtime as it is sent."""
    # Docstrings and comments are a good part of it, and serial lines are slow.
    if path.suffix == ".py":
        return bare(path.read_text(encoding="utf-8")).encode()
    return path.read_bytes()


def _digest(data: bytes) -> str:
    """Return the SHA-256 in the encoding of a wheel's record."""
    encoded = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return encoded.rstrip(b"=").decode()


def push(connection: Connection, app: str, wheels: Sequence[Wheel | str]) -> str:
    """Put the runtime and some wheels on a device, which uses them if they all work.

    Only wheels that the device lacks are sent. A wheel given by its name comes from the
    package index, for the device's Python and processor, with its requirements. The
    runtime is this edgec's, unless a wheel of it is among `wheels` (`edgec sign
    --runtime`).

    Returns a message. Raises InputError for a wheel of another kind of machine before
    anything is sent, and the errors of the device, which then uses its old wheels.
    """
    # All wheels are complete and fit before the first is sent.
    files = _complete(connection, wheels)
    recipes = [_recipe(wheel, app) for wheel in files]
    site, _ = connection.ask(SITE, AppRequest(app), limit=ADOPT_S)
    sent = 0
    for wheel, recipe in zip(files, recipes, strict=True):
        if recipe.sha256 in site.wheels:
            continue
        sent += send_parts(connection, recipe)[0]
        connection.ask(UNPACK, AppRequest(app), wheel.signature, limit=ADOPT_S)

    # The device tries all of them together, and keeps its old ones if an import fails.
    adopt = AdoptRequest(app, [recipe.sha256 for recipe in recipes])
    adopted, _ = connection.ask(ADOPT, adopt, limit=ADOPT_S)
    message = f"runtime {adopted.runtime}"
    return message if sent else f"{message} was there already"


def _complete(connection: Connection, wheels: Sequence[Wheel | str]) -> list[Wheel]:
    """Return the wheels with those of the package index and the runtime."""
    info, _ = connection.ask(INFO, Empty())
    files = [wheel for wheel in wheels if isinstance(wheel, Wheel)]
    for wheel in files:
        wheel.fits(info.target, info.python)
    # The index knows a wheel for the device's Python and processor, not for ours.
    names = [wheel for wheel in wheels if isinstance(wheel, str)]
    files += download(names, info.target, info.python)
    if not any(wheel.name.startswith("edgec_runtime-") for wheel in files):
        files.insert(0, runtime_wheel())
    return files


def _recipe(wheel: Wheel, app: str) -> Assembly:
    """Return a wheel as an assembly of one part."""
    sha256 = hashlib.sha256(wheel.data).hexdigest()
    return Assembly(wheel.data, sha256, ((0, len(wheel.data), sha256),), b"", app)


def has_runtime(connection: Connection, app: str) -> bool:
    """Return whether the device can run the application with a Session."""
    site, _ = connection.ask(SITE, AppRequest(app), limit=ADOPT_S)
    return bool(site.active)
