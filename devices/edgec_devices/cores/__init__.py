"""CPU cores: one TOML file each, named as the compiler's -mcpu names the core.

`CoreFacts` has the keys. Beside it, <core>.cycles.json has the cycles that each kernel
takes for a unit of work, fitted to the pipeline model by `make cpu-table`. There is no
list to extend.
"""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from edgec_devices.decoding import from_toml

FOLDER = Path(__file__).parent
"""The folder of the cores' files."""
CORRECT = "correct the file; docs/boards.md says what each of its keys means"


class PipelineFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """How the instructions of a core are issued (edgec_devices.pipeline.core).

    Attributes:
        in_order: whether instructions start in the order of the program
        width: instructions decoded a cycle
        mispredicted: cycles lost by a wrongly predicted branch
        pipes: the equal pipes of each set by its name
        times: by kind of instruction
        dispatch: micro-operations handed to the pipes a cycle; 0 on a core in order
        window: micro-operations between the oldest unfinished one and the newest; 0 on
            a core in order
    """

    in_order: bool
    width: int
    mispredicted: float
    pipes: dict[str, tuple[str, ...]]
    times: dict[str, str]
    dispatch: int = 0
    window: int = 0


class CoreFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """What the file of a core says.

    Attributes:
        isa: features that kernel variants ask for
        vector: bytes of a vector register
        registers: vector registers
        macs_s8: int8 multiply-accumulates a cycle at best
        macs_f32: float multiply-accumulates a cycle at best
        stream: bytes a cycle from memory
        l1_kib: the first data cache, KiB
        l2_kib: the second cache, as far as one core has it for itself, KiB
        near: bytes a cycle from the first data cache
        flags: flags of the C compiler in addition to the target's
        detect: the C function of ek_cpu.h that tells whether the machine has such a
            core; "" if every machine of the target has
        winograd_f16: the most results in each direction that Winograd's convolutions
            of float16 compute together; None: any number
        pipeline: how its instructions are issued; None: no emulator counts them
    """

    isa: tuple[str, ...]
    vector: int
    registers: int
    macs_s8: float
    macs_f32: float
    stream: float
    l1_kib: int
    l2_kib: int
    near: float = 16
    flags: tuple[str, ...] = ()
    detect: str = ""
    winograd_f16: int | None = None
    pipeline: PipelineFacts | None = None


def core_file(name: str) -> Path:
    """Return the file of a core, which need not exist."""
    return FOLDER / f"{name}.toml"


def core_facts(name: str) -> CoreFacts | None:
    """Return what the file of a core says; None for a core without a file.

    Raises InputError for a file with a wrong or an unknown key.
    """
    # A person may compile for any core that the compiler knows.
    try:
        return from_toml(core_file(name), CoreFacts, CORRECT)
    except FileNotFoundError:
        return None


def cycles_file(name: str) -> Path:
    """Return the file with the cycles that kernels take on a core."""
    return FOLDER / f"{name}.cycles.json"


def core_names() -> list[str]:
    """Return the names of the cores that have a file."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def pipelined_cores() -> list[str]:
    """Return the names of the cores that have a pipeline model."""
    modelled: list[str] = []
    for name in core_names():
        facts = core_facts(name)
        # No emulator counts the instructions of x86 cores.
        if facts is not None and facts.pipeline is not None:
            modelled.append(name)
    return modelled
