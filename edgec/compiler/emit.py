"""Stage 6 of a compile: the C of every target, and .tflite files for the Edge TPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from edgec_devices.boards import ArchTarget, Board
from edgec_runtime.vision.tasks.base import Task

from edgec.compiler.lower import Lowered
from edgec.compiler.task import vision_texts
from edgec.compiler.tuning_databases import TuningDatabases
from edgec.compiler.whole_tflite import whole_tflite
from edgec.emit.sources import TargetSources, target_sources
from edgec.emit.tflite import write_tflite
from edgec.schedule.cores import PLAIN


@dataclass(frozen=True)
class Emitted:
    """A partitioned model as source files.

    Attributes:
        sources: the C of each target, this machine's among them.
        board_targets: the names of the board's own targets.
        tflites: the .tflite file of each Edge TPU segment.
        whole_tflite: that of the whole model; None where nobody wants it.
        threads: the largest number of threads of the C.
    """

    sources: Mapping[str, TargetSources]
    board_targets: tuple[str, ...]
    tflites: Mapping[str, bytes]
    whole_tflite: bytes | None
    threads: int

    @property
    def board_sources(self) -> dict[str, TargetSources]:
        """The C of the board's own targets."""
        return {name: self.sources[name] for name in self.board_targets}

    @property
    def first(self) -> TargetSources:
        """The C of the board's first target."""
        return self.sources[self.board_targets[0]]

    @property
    def link_flags(self) -> tuple[str, ...]:
        """The flags for the linker."""
        return ("-pthread",) if self.threads > 1 else ()

    def arena_bytes(self, segment: str) -> int:
        """Return the bytes of a segment's arena, enough for every target."""
        # Kernel variants have scratch memory of different sizes.
        return max(made.arena[segment] for made in self.sources.values())


def emit(
    lowered: Lowered,
    task: Task | None,
    tuning: TuningDatabases,
    threads: int,
    keep_tflite: bool = False,
) -> Emitted:
    """Generate the C for the board's targets and for this machine.

    task: the task, bound to the model's outputs. threads: the largest number of threads.
    keep_tflite: whether the whole model becomes a .tflite file too.
    """
    # A model that cannot be one is refused before the C is generated.
    whole = whole_tflite(lowered.graph) if keep_tflite else None
    board = lowered.target.board
    segments = lowered.partition.segments
    vision = vision_texts(lowered.read, lowered.graph, task)
    own = {t.name for t in board.targets}
    sources = {}
    for target in targets_of(board):
        if target.name in own:
            cores = tuning.cores(lowered.cores(target, threads))
        else:
            # This machine only tries another's bundle: plain code, which shares its
            # weights with other targets, is compiled faster.
            cores = (replace(PLAIN, threads=threads),)
        made = target_sources(lowered.graph, segments, cores)
        sources[target.name] = made.with_files(vision)
    tflites = {
        s.name: write_tflite(s.in_tflite) for s in segments if s.place == "edgetpu"
    }
    names = tuple(t.name for t in board.targets)
    return Emitted(sources, names, tflites, whole, threads)


def targets_of(board: Board) -> list[ArchTarget]:
    """Return the board's targets, and this machine's, where bundles are verified."""
    here = Board.load("host").targets[0]
    targets = [*board.targets]
    if here.name not in {t.name for t in targets}:
        targets.append(here)
    return targets
