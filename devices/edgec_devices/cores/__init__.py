"""CPU cores: one TOML file each, named as the compiler's -mcpu names the core.

    isa = ["neon"]          # features that kernel variants ask for
    vector = 16             # bytes of a vector register
    registers = 32          # vector registers
    macs_s8 = 8             # int8 multiply-accumulates a cycle at best
    macs_f32 = 4            # float multiply-accumulates a cycle at best
    near = 16               # bytes a cycle from the first data cache
    stream = 2              # bytes a cycle from memory
    l1_kib = 32             # the first data cache
    l2_kib = 1024           # the second cache, as far as one core has it for itself

    [pipeline]              # how its instructions are issued (edgec_devices.pipeline)

Beside it, <core>.cycles.json has the cycles that each kernel takes for a unit of work,
fitted to the pipeline model by `make cpu-table`. There is no list to extend.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
"""The folder of the cores' files."""


def core_facts(name: str) -> dict[str, Any]:
    """Return what the file of a core says; nothing for a core without a file."""
    path = FOLDER / f"{name}.toml"
    # A person may compile for any core that the compiler knows.
    if not path.is_file():
        return {}

    text = path.read_text()
    return tomllib.loads(text)


def cycles_file(name: str) -> Path:
    """Return the file with the cycles that kernels take on a core."""
    return FOLDER / f"{name}.cycles.json"


def pipelined_cores() -> list[str]:
    """Return the names of the cores that have a pipeline model."""
    modelled: list[str] = []
    for path in sorted(FOLDER.glob("*.toml")):
        facts = core_facts(path.stem)
        # No emulator counts the instructions of x86 cores.
        if "pipeline" in facts:
            modelled.append(path.stem)
    return modelled
