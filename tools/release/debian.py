"""The Debian package of the runtime: what a Raspberry Pi needs to run bundles."""

from __future__ import annotations

import io
import zipfile

from edgec_devices.debian_package import File, deb

NAME = "edgec-runtime"
ARCHITECTURE = "arm64"
"""The 64-bit Raspberry Pi OS. The files are Python, and the same for all machines."""
_FOLDER = "usr/lib/python3/dist-packages"
_COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/

Files: *
Copyright: The edgec authors
License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
"""
_SCRIPTS = {
    "postinst": """#!/bin/sh
set -e
if [ "$1" = configure ] && command -v py3compile >/dev/null; then
    py3compile -p edgec-runtime || true
fi
""",
    "prerm": """#!/bin/sh
set -e
if command -v py3clean >/dev/null; then
    py3clean -p edgec-runtime || true
fi
""",
}


def runtime_package(wheel: bytes, version: str) -> bytes:
    """Return the .deb with the files of the runtime's wheel, where Debian has them."""
    files = {f"usr/share/doc/{NAME}/copyright": File(_COPYRIGHT.encode())}
    with zipfile.ZipFile(io.BytesIO(wheel)) as archive:
        for name in archive.namelist():
            # The record is pip's, and dpkg has its own.
            if not name.endswith(".dist-info/RECORD"):
                files[f"{_FOLDER}/{name}"] = File(archive.read(name))
    control = {
        "Package": NAME,
        "Version": version,
        "Architecture": ARCHITECTURE,
        "Maintainer": "edgec <edgec@localhost>",
        "Depends": "python3 (>= 3.9), python3-numpy",
        "Suggests": "python3-zmq, python3-paho-mqtt (>= 2.1), python3-pil",
        "Section": "python",
        "Priority": "optional",
        "Description": "runs vision models compiled by edgec\n"
        " The Python package edgec_runtime, with the driver of a Coral stick.\n"
        " python3 -m edgec_runtime.serve BUNDLE answers Frigate, DeepStack's\n"
        " clients and MQTT.",
    }
    return deb(control, _SCRIPTS, files)
