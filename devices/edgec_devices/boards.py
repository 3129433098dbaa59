"""Boards: one TOML file each in profiles/.

A new file is a new board; there is no list to extend.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgec_runtime.errors import InputError, did_you_mean
from edgec_runtime.session.session import machine_target

PROFILES = Path(__file__).parent / "profiles"
HOST = "host"
"""The board that is the machine on which edgec runs."""
CORAL_LINKS = ("usb2", "usb3", "pcie")


@dataclass(frozen=True)
class ArchTarget:
    """One kind of code a board runs.

    `library` and `program` are zig's triples; `mcpu` is zig's name for the CPU.

    qemu, qemu_cpu: the user-mode emulator that runs such a program, and its -cpu.
    """

    name: str
    library: str
    program: str
    mcpu: str
    qemu: str
    qemu_cpu: str


@dataclass(frozen=True)
class Cache:
    """One level of cache, as one core sees it; lines have 64 bytes.

    foreseen, missed: cycles lost by a line that is not in it: one of a stream that a
    prefetcher follows, and any other. They cannot be looked up: each profile has those
    with which whole networks take their published times.
    """

    kib: int
    ways: int
    foreseen: float
    missed: float


@dataclass(frozen=True)
class Board:
    """Facts about a board, as published or read on it.

    targets: the code that a bundle for the board has. optional: the code that it has
    only where it is asked for. coral: how an Edge TPU is attached, "usb2", "usb3" or
    "pcie".  core: the pipeline model of its 64-bit code, a file of pipeline/cores, or
    "" if there is none.  caches: nearest first.  ipc: instructions per cycle of our
    generated C, for what has no pipeline model.
    """

    name: str
    model: str
    targets: tuple[ArchTarget, ...]
    clock_ghz: float
    coral: str
    ipc: float
    core: str = ""
    caches: tuple[Cache, ...] = ()
    optional: tuple[ArchTarget, ...] = ()

    @staticmethod
    def load(name: str) -> Board:
        """The board of profiles/<name>.toml.

        Raises InputError with the nearest name for any other.
        """
        known = boards()
        if name not in known:
            raise InputError(
                f'there is no board "{name}"{did_you_mean(name, known)}',
                hint=f"use {', '.join(known)}",
            )
        with (PROFILES / f"{name}.toml").open("rb") as f:
            facts = tomllib.load(f)
        targets = tuple(_target(t) for t in facts.pop("targets"))
        if name == HOST:
            targets = tuple(t for t in targets if t.name == machine_target())
            if not targets:
                raise InputError(
                    f"edgec has no target for this machine, {machine_target()}, "
                    'so none for "host"',
                    hint="compile for a board, for example --target pi4",
                )
        caches = tuple(Cache(**c) for c in facts.pop("caches", ()))
        optional = tuple(_target(t) for t in facts.pop("optional", ()))
        board = Board(
            name=name, targets=targets, caches=caches, optional=optional, **facts
        )
        assert board.coral in CORAL_LINKS, f"{name}.toml: {board.coral}"
        return board

    def target(self, name: str | None = None) -> ArchTarget:
        """The target of this name, or the board's first and best."""
        known = (*self.targets, *self.optional)
        for t in known:
            if name in (None, t.name):
                return t
        names = [t.name for t in known]
        raise InputError(
            f'{self.name} does not run "{name}"{did_you_mean(str(name), names)}',
            hint=f"use {', '.join(names)}",
        )

    def with_optional(self, names: Sequence[str]) -> Board:
        """The board whose bundles also have this code: "armv7", or "host" for this
        machine's.

        Raises InputError for code that the board cannot run.
        """
        targets = list(self.targets)
        for name in names:
            added = self._also(name)
            if added.name not in {t.name for t in targets}:
                targets.append(added)
        return replace(self, targets=tuple(targets))

    def _also(self, name: str) -> ArchTarget:
        if name == HOST:
            return Board.load(HOST).targets[0]
        known = {t.name.removeprefix("linux-"): t for t in self.optional}
        if name not in known:
            what = (
                f"a bundle for {self.name} cannot have code for "
                f"{name}{did_you_mean(name, [*known, HOST])}"
            )
            raise InputError(
                what, "--also", f"give {' or '.join([*known, HOST])}, or leave it out"
            )
        return known[name]


@dataclass(frozen=True)
class Target:
    """What a bundle is compiled for: a board, with or without a Coral Edge TPU."""

    board: Board
    coral: bool

    @property
    def name(self) -> str:
        """As a person writes it: "pi4+coral"."""
        return self.board.name + ("+coral" if self.coral else "")

    @staticmethod
    def parse(text: str, also: Sequence[str] = ()) -> Target:
        """ "pi4" or "pi4+coral", and what `Board.with_optional` adds.

        Raises InputError for anything else.
        """
        board, plus, extra = text.strip().partition("+")
        if plus and extra != "coral":
            raise InputError(
                f'"{text}" is no target: "+{extra}" is not '
                f"known{did_you_mean(extra, ['coral'])}",
                hint=f"use {board} or {board}+coral",
            )
        return Target(Board.load(board).with_optional(also), bool(plus))


def boards() -> tuple[str, ...]:
    """The names of all boards, sorted."""
    return tuple(sorted(p.stem for p in PROFILES.glob("*.toml")))


def _target(facts: dict[str, str]) -> ArchTarget:
    plain = facts.pop("mcpu_without_avx2", None)
    if plain is not None and not _has_avx2():
        facts["mcpu"] = plain
    return ArchTarget(**facts)


def _has_avx2() -> bool:
    """Whether this x86 runs x86_64_v3; yes where /proc does not say."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return True
    return "flags" not in text or " avx2 " in text
