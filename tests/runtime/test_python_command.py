"""Processes that the runtime starts write no byte code where the runtime does not."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import cv2
import edgec_runtime
import numpy as np

_UPLOAD = """
import sys
sys.path.insert(0, sys.argv[1])
from edgec_runtime.webcam.uploads import decode_upload
print(decode_upload(open(sys.argv[2], "rb").read()).shape)
"""


def test_no_byte_code_is_written_beside_checked_files(tmp_path: Path) -> None:
    """As in a wheel on a device, whose folder has exactly the files of its list."""
    package = tmp_path / "site" / "edgec_runtime"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(edgec_runtime.__file__).parent, package, ignore=ignored)
    cv2.imwrite(str(tmp_path / "x.png"), np.zeros((4, 6, 3), np.uint8))
    words = [str(tmp_path / "site"), str(tmp_path / "x.png")]
    done = subprocess.run(
        [sys.executable, "-B", "-c", _UPLOAD, *words],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "(4, 6, 3)"
    assert not any(package.rglob("*.pyc"))
