"""Whether the tests notice small faults in ops, passes, kernels, flash and runtime.

    python -m benchmarks.planted_faults [--only fold_pad,tracker]

Each fault is written into a copy of the tree, and the tests run there that should notice
it. 1 if one is missed, which a test is to be written for.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("", "partitioner", "runtime", "devices")
CSRC = "runtime/edgec_runtime/csrc"
DEVICE = "runtime/edgec_runtime/device_end"


class Fault(NamedTuple):
    """A text of a file that is replaced by a wrong one, and the tests of it."""

    file: str
    right: str
    wrong: str
    tests: str


FAULTS = (
    # ---- ops
    Fault(
        "edgec/ops/pool.py",
        "has_indices or is_dilated or",
        "has_indices or",
        "tests/ops",
    ),
    Fault(
        f"{CSRC}/ek_unary.h",
        "EK_CLAMP(v + 3.0f, 0.0f, 6.0f) / 6.0f",
        "EK_CLAMP(v + 3.0f, 0.0f, 6.0f) / 6.01f",
        "tests/conformance/test_ops.py",
    ),
    Fault(
        f"{CSRC}/ek_pool.h", "a / (float)n", "a / (float)(n + 1)", "tests/conformance"
    ),
    # ---- passes
    Fault(
        "edgec/passes/fold_pad.py", "present[1] + bottom", "present[1]", "tests/passes"
    ),
    Fault(
        "edgec/passes/fold_bias.py",
        'offset if op.kind == "add" else -offset',
        "offset",
        "tests/passes",
    ),
    # ---- schedules and their kernels
    Fault("edgec/schedule/liveness.py", "nbytes * threads", "nbytes", "tests/schedule"),
    Fault(
        "edgec/schedule/liveness.py",
        "scratch.nbytes > STACK_BYTES",
        "scratch.nbytes > 0",
        "tests/schedule/test_arena.py",
    ),
    Fault(
        f"{CSRC}/simd/ek_attention_f32_simd.h",
        "if (p->scale != 1) ek",
        "if (p->scale < 1 && j) ek",
        "tests/schedule/test_attention.py",
    ),
    Fault(
        f"{CSRC}/simd/ek_chain_f32_simd.h",
        "ek_vf_less(u, zero)",
        "ek_vf_less(zero, u)",
        "tests/schedule/test_chains.py",
    ),
    Fault(
        f"{CSRC}/simd/ek_narrow_conv2d_f32_simd.h",
        "if (p->clamps) sum",
        "if (0) sum",
        "tests/schedule/test_narrow_conv2d.py",
    ),
    Fault(f"{CSRC}/vnni/ek_requant_vnni.h", "1ll << 31", "1ll << 30", "tests/schedule"),
    Fault(
        f"{CSRC}/simd/ek_simd_f16_x86.h",
        "_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));\n}",
        "_mm256_cvtps_ph(v, _MM_FROUND_TO_ZERO));\n}",
        "tests/conformance/test_float16.py",
    ),
    # ---- flash, and the device's end of it
    Fault(
        f"{DEVICE}/wheels.py",
        "_MEMBER.fullmatch(name) is not None and",
        "",
        "tests/devices/test_pushing.py",
    ),
    Fault(
        f"{DEVICE}/reception.py",
        "if digest(path) != plan.sha256",
        "if False",
        "tests/devices",
    ),
    Fault(
        f"{DEVICE}/reception.py",
        "len(self.parts) > MAX_FILES",
        "False",
        "tests/devices/test_attacks.py",
    ),
    # ---- runtime
    Fault(
        "runtime/edgec_runtime/cascade/tracker.py",
        "0 < self._every <= self._rested",
        "0 < self._every < self._rested",
        "tests/cascade",
    ),
    Fault(
        "runtime/edgec_runtime/vision/smoothing.py",
        "overlap > best_overlap",
        "overlap < best_overlap",
        "tests/tasks tests/webcam",
    ),
)


def planted(fault: Fault, folder: Path) -> str:
    """Return the first test that fails in a copy of the tree with a fault; "" for none."""
    path = folder / fault.file
    text = path.read_text()
    assert fault.right in text, f"{fault.file} has no {fault.right!r}"
    path.write_text(text.replace(fault.right, fault.wrong))
    environment = {
        **os.environ,
        "PYTHONPATH": ":".join(str(folder / package) for package in PACKAGES),
        "EDGEC_SHARED": str(ROOT.parent / "shared"),
    }
    words = [
        "-m",
        "pytest",
        "-x",
        "-q",
        "-rfE",
        "-m",
        "not pi",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [sys.executable, *words, *fault.tests.split()],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    path.write_text(text)
    lines = done.stdout.splitlines()
    failures = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return failures[0].split(" - ")[0] if failures else ""


def main() -> int:
    """Print a line for each fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", help="parts of file names, with commas")
    only = parser.parse_args().only.split(",")
    missed = 0
    with tempfile.TemporaryDirectory(prefix="edgec-") as name:
        folder = Path(name) / "tree"
        away = shutil.ignore_patterns(".git", ".venv*", "build", "__pycache__")
        shutil.copytree(ROOT, folder, ignore=away)
        for fault in FAULTS:
            if any(part in fault.file for part in only):
                failure = planted(fault, folder)
                missed += not failure
                change = f"{fault.file}: {fault.right!r} -> {fault.wrong!r}"
                print(f"{change}\n    {failure or 'missed'}", flush=True)
    print(f"{missed} missed")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
