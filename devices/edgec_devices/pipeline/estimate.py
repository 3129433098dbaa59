"""Cycles of an inference, by segment and op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edgec_devices.boards import Cache
from edgec_devices.pipeline.core import PipelineCore
from edgec_devices.pipeline.counts import Block, Bucket, Counts, Place
from edgec_devices.pipeline.decode import block as decode_block
from edgec_devices.pipeline.steady import cycles


@dataclass(frozen=True)
class Work:
    """What a core does in one place, whatever its caches cost.

    Attributes:
        instructions: their exact number.
        core: the cycles of the code, when all data is in the nearest cache.
        branches: the cycles that wrongly predicted branches cost.
        unknown: the instructions among them that the model has no time for; they count
            as the core's file says under `unknown`.
        lines: for each cache the lines that it lacked, foreseen by a prefetcher and
            other, and those that it wrote to the next one or to memory.
        times: how often it was begun, a part of an op.
    """

    instructions: int
    core: float
    branches: float
    unknown: int
    lines: tuple[tuple[int, int, int], ...] = ()
    times: int = 0


@dataclass(frozen=True)
class Estimate:
    """Of one place.  instructions: exact.  cycles: core + memory + branches.  unknown:
    the instructions among them that the model has no time for; they count as the core's
    file says under `unknown`.  shared_lines: lines that are looked for in the cache
    that all cores have, or written to it.  memory_lines: lines that come from memory or
    go to it.  times: how often it was begun, a part of an op.
    """

    instructions: int
    core: float
    memory: float
    branches: float
    unknown: int
    shared_lines: int = 0
    memory_lines: int = 0
    times: int = 0

    @property
    def cycles(self) -> float:
        """All of them."""
        return self.core + self.memory + self.branches

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.instructions + other.instructions,
            self.core + other.core,
            self.memory + other.memory,
            self.branches + other.branches,
            self.unknown + other.unknown,
            self.shared_lines + other.shared_lines,
            self.memory_lines + other.memory_lines,
            self.times + other.times,
        )


def estimate(
    counts: Counts, core: str, caches: tuple[Cache, ...], inference: int = -1
) -> dict[Place, Estimate]:
    """The model's cycles of one counted inference on a core of cores/ behind these
    caches.

    The counts must be of A64 code, made with the same caches.  Raises InputError for a
    core that is not there.
    """
    alone, _ = work(counts, core, inference)
    return {place: behind_caches(w, caches) for place, w in alone.items()}


def estimate_parts(
    counts: Counts, core: str, caches: tuple[Cache, ...], inference: int = -1
) -> dict[Place, list[Estimate]]:
    """As `estimate`, of the parts of each op that threads share, each on a core of its
    own (edgec_devices.multicore).
    """
    _, shared = work(counts, core, inference)
    return {
        place: [behind_caches(part, caches) for part in parts]
        for place, parts in shared.items()
    }


def work(
    counts: Counts, core: str, inference: int = -1
) -> tuple[dict[Place, Work], dict[Place, list[Work]]]:
    """The work of one counted inference: that of one thread, and the parts of each op
    that threads share.

    The counts must be of A64 code.  Raises InputError for a core that is not there.
    """
    model = PipelineCore.load(core)
    times: dict[bytes, tuple[float, int]] = {}

    def of(bucket: Bucket) -> Work:
        return _work(bucket, counts.blocks, model, times)

    alone = {place: of(b) for place, b in counts.inferences[inference].items()}
    shared = counts.parts[inference] if counts.parts else {}
    return alone, {place: list(map(of, parts)) for place, parts in shared.items()}


def behind_caches(w: Work, caches: tuple[Cache, ...]) -> Estimate:
    """The cycles of a place's work with what the lines of these caches cost.

    The caches must be as many as those of the counts.
    """
    memory = sum(
        foreseen * c.foreseen + other * c.missed
        for (foreseen, other, _), c in zip(w.lines, caches, strict=True)
    )
    traffic = [sum(lines) for lines in w.lines]
    shared_lines = 0
    for lines, level in zip(traffic, caches[1:], strict=False):
        # What the level before misses is looked for here, what it writes goes here.
        if level.shared:
            shared_lines = lines
    memory_lines = traffic[-1] if traffic else 0
    return Estimate(
        w.instructions,
        w.core,
        memory,
        w.branches,
        w.unknown,
        shared_lines,
        memory_lines,
        w.times,
    )


def _work(
    bucket: Bucket,
    blocks: Mapping[int, Block],
    core: PipelineCore,
    times: dict[bytes, tuple[float, int]],
) -> Work:
    """The work of a bucket.  times: cycles and unknown instructions of a block's code,
    which are added here.
    """
    instructions = unknown = 0
    spent = 0.0
    for number, n in bucket.ran.items():
        block = blocks[number]
        if block.code not in times:
            insns = decode_block(block.code)
            times[block.code] = (
                cycles(insns, core),
                sum(core.time(i.kind) in (None, core.unknown) for i in insns),
            )
        each, strange = times[block.code]
        instructions += n * block.instructions
        spent += n * each
        unknown += n * strange
    return Work(
        instructions,
        spent,
        bucket.mispredicted * core.mispredicted,
        unknown,
        bucket.lines,
        bucket.times,
    )
