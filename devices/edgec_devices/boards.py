"""Loads boards, each from a TOML file in profiles/; a new file is a new board."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from edgec_runtime.errors import InputError, did_you_mean
from edgec_runtime.session.session import machine_target
from msgspec import Meta, Struct
from msgspec.structs import replace

from edgec_devices.cores import core_facts, core_names
from edgec_devices.decoding import from_toml
from edgec_devices.intervals import ErrorFacts

PROFILES = Path(__file__).parent / "profiles"
HOST = "host"
"""The board of the machine on which edgec runs."""
CORRECT = "correct the profile; docs/boards.md says what each of its keys means"


class ArchTarget(Struct, frozen=True, forbid_unknown_fields=True):
    """One kind of code that a board runs.

    Attributes:
        name: name of the target
        library: zig's triple for libraries
        program: zig's triple for programs
        mcpu: zig's name of the CPU
        qemu: the user-mode emulator for programs
        qemu_cpu: the -cpu of the emulator
        mcpu_without_avx2: zig's name of the CPU on an older x86
    """

    name: str
    library: str
    program: str
    mcpu: str
    qemu: str
    qemu_cpu: str
    mcpu_without_avx2: str = ""


class Cache(Struct, frozen=True, forbid_unknown_fields=True):
    """One level of cache, as one core sees it; lines have 64 bytes.

    The costs of misses are not published: each profile has those with which whole
    networks take their published times.

    Attributes:
        kib: size, KiB
        ways: associativity
        foreseen: cycles for a missing line of a stream that a prefetcher follows
        missed: cycles for any other missing line
        shared: whether all cores have it together
    """

    kib: int
    ways: int
    foreseen: float
    missed: float
    shared: bool = False


class Board(Struct, frozen=True, forbid_unknown_fields=True):
    """Facts about a board, as published or read on it.

    Attributes:
        model: name for people
        names: other names that `--target` takes, of boards with the same chip
        targets: the code that a bundle for the board has
        clock_ghz: clock of the CPU, GHz
        coral: link of an Edge TPU, "usb2", "usb3" or "pcie"
        ipc: instructions per cycle of generated C, for code without a pipeline model
        core: pipeline model of its 64-bit code, a file of cores/, or ""
        caches: levels of cache, the nearest first
        optional: the code that a bundle has only on request
        memory_gbs: rate of the memory that networks reach with all cores, reading and
            writing, GB/s; 0 where it is unknown
        error: relative errors of its estimates, root mean square beside published times
            of networks, with one thread and with more (docs/measured.md); a board that
            nobody compared has none, and is given UNCHECKED
        name: name of the profile
    """

    model: str
    targets: Annotated[tuple[ArchTarget, ...], Meta(min_length=1)]
    clock_ghz: Annotated[float, Meta(gt=0)]
    coral: Literal["usb2", "usb3", "pcie"]
    ipc: Annotated[float, Meta(gt=0)]
    names: tuple[str, ...] = ()
    core: str = ""
    caches: tuple[Cache, ...] = ()
    optional: tuple[ArchTarget, ...] = ()
    memory_gbs: float = 0.0
    error: ErrorFacts = ErrorFacts()
    name: str = ""

    @staticmethod
    def load(name: str) -> Board:
        """Return the board of profiles/<name>.toml, or the one that has it among `names`.

        Raises InputError with the nearest name if there is none, and for a profile with
        a wrong or an unknown key.
        """
        if name not in boards():
            name = _with_name(name)
        path = PROFILES / f"{name}.toml"
        board = replace(from_toml(path, Board, CORRECT), name=name)
        if board.core and not core_facts(board.core):
            raise InputError(
                f'the board {name} has the core "{board.core}", which has no '
                f"file{did_you_mean(board.core, core_names())}",
                at=str(path),
                hint="correct the profile, or write the core's file (docs/boards.md)",
            )

        targets = tuple(map(_for_this_x86, board.targets))
        # The profile of the host has every kind of machine; this one is of one kind.
        if name == HOST:
            targets = tuple(t for t in targets if t.name == machine_target())
            if not targets:
                raise InputError(
                    f"edgec has no target for this machine, {machine_target()}, "
                    'so none for "host"',
                    hint="compile for a board, for example --target pi4",
                )
        return replace(board, targets=targets)

    def target(self, name: str | None = None) -> ArchTarget:
        """Return the target of this name, or the board's first, which is its best."""
        targets = (*self.targets, *self.optional)
        for t in targets:
            if name in (None, t.name):
                return t
        names = [t.name for t in targets]
        raise InputError(
            f'{self.name} does not run "{name}"{did_you_mean(str(name), names)}',
            hint=f"use {', '.join(names)}",
        )

    def with_optional(self, names: Sequence[str]) -> Board:
        """Return the board with more code in its bundles.

        A name is, for example, "armv7", or "host" for the code of this machine. Raises
        InputError for code that the board cannot run.
        """
        # Twice the same code would only make the bundle larger.
        targets = list(self.targets)
        for name in names:
            optional = self._optional(name)
            if optional.name not in {t.name for t in targets}:
                targets.append(optional)
        return replace(self, targets=tuple(targets))

    def _optional(self, name: str) -> ArchTarget:
        """Return the optional target of a name; raises InputError without one."""
        # Any board may have the code of this machine, to try its bundles here.
        if name == HOST:
            return Board.load(HOST).targets[0]
        by_name = {t.name.removeprefix("linux-"): t for t in self.optional}
        if name not in by_name:
            message = (
                f"a bundle for {self.name} cannot have code for "
                f"{name}{did_you_mean(name, [*by_name, HOST])}"
            )
            raise InputError(
                message,
                "--also",
                f"give {' or '.join([*by_name, HOST])}, or leave it out",
            )
        return by_name[name]


@dataclass(frozen=True)
class Target:
    """The target of a bundle: a board, with or without a Coral Edge TPU."""

    board: Board
    coral: bool

    @property
    def name(self) -> str:
        """Return the name as a person writes it, for example "pi4+coral"."""
        return self.board.name + ("+coral" if self.coral else "")

    @staticmethod
    def parse(text: str, also: Sequence[str] = ()) -> Target:
        """Parse "pi4" or "pi4+coral"; `also` has the names for `Board.with_optional`.

        Raises InputError for other texts.
        """
        name, plus, extra = text.strip().partition("+")
        board = Board.load(name)
        if plus and extra != "coral":
            raise InputError(
                f'"{text}" is not a target: "+{extra}" is not '
                f"known{did_you_mean(extra, ['coral'])}",
                hint=f"use {name} or {name}+coral",
            )
        return Target(board.with_optional(also), bool(plus))


def boards() -> tuple[str, ...]:
    """Return the names of all boards, sorted."""
    return tuple(sorted(p.stem for p in PROFILES.glob("*.toml")))


def _with_name(name: str) -> str:
    """Return the board that has another name; raises InputError if none has it."""
    by_other_name = {}
    for board in boards():
        path = PROFILES / f"{board}.toml"
        for other in from_toml(path, Board, CORRECT).names:
            by_other_name[other] = board
    if name in by_other_name:
        return by_other_name[name]
    # Who leaves out the sign in "pi4+coral" means the Edge TPU too.
    known = (*boards(), *by_other_name, *(f"{board}+coral" for board in boards()))
    # A Raspberry Pi has many spellings, for example "raspberry-pi-4" and "rpi4".
    short = re.sub(r"raspberry\W*pi\W*|rpi", "pi", name, flags=re.IGNORECASE)
    raise InputError(
        f'there is no board "{name}"{did_you_mean(short, known)}',
        hint=f"use {', '.join(boards())}; docs/targets.md has their other names",
    )


def _for_this_x86(target: ArchTarget) -> ArchTarget:
    """Return a target with its older CPU, if it has one, on an x86 without AVX2."""
    if not target.mcpu_without_avx2 or _has_avx2():
        return target
    return replace(target, mcpu=target.mcpu_without_avx2)


def _has_avx2() -> bool:
    """Return whether this x86 runs x86_64_v3; True if /proc does not tell."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return True
    # Spaces around the name: "avx2" is also a part of longer names.
    return "flags" not in text or " avx2 " in text
