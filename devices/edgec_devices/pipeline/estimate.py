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
class Estimate:
    """Of one place.  instructions: exact.  cycles: core + memory + branches.  unknown:
    the instructions among them that the model has no time for; they count as the core's
    file says under `unknown`.  shared_lines: lines that are looked for in the cache
    that all cores have.  memory_lines: lines that come from memory.  times: how often
    it was begun, a part of an op.
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
    model = PipelineCore.load(core)
    times: dict[bytes, tuple[float, int]] = {}
    return {
        p: _of(b, counts.blocks, model, caches, times)
        for p, b in counts.inferences[inference].items()
    }


def estimate_parts(
    counts: Counts, core: str, caches: tuple[Cache, ...], inference: int = -1
) -> dict[Place, list[Estimate]]:
    """As `estimate`, of the parts of each op that threads share, each on a core of its
    own (edgec_devices.multicore).
    """
    model = PipelineCore.load(core)
    times: dict[bytes, tuple[float, int]] = {}
    shared = counts.parts[inference].items() if counts.parts else ()
    return {
        p: [_of(b, counts.blocks, model, caches, times) for b in parts]
        for p, parts in shared
    }


def _of(
    bucket: Bucket,
    blocks: Mapping[int, Block],
    core: PipelineCore,
    caches: tuple[Cache, ...],
    times: dict[bytes, tuple[float, int]],
) -> Estimate:
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
    memory = sum(
        f * c.foreseen + m * c.missed
        for (f, m), c in zip(bucket.misses, caches, strict=True)
    )
    shared_lines = 0
    for lines, level in zip(bucket.misses, caches[1:], strict=False):
        # A line that the level before misses is looked for here.
        if level.shared:
            shared_lines = sum(lines)
    memory_lines = sum(bucket.misses[-1]) if bucket.misses else 0
    return Estimate(
        instructions,
        spent,
        memory,
        bucket.mispredicted * core.mispredicted,
        unknown,
        shared_lines,
        memory_lines,
        bucket.times,
    )
