"""What csrc/block_count.c wrote: which blocks ran how often, in which op, and how many
cache lines missed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgec_runtime.errors import ToolError

from edgec_devices.boards import Cache

Place = tuple[int, int]
"""(segment, op), from 0.  op -1: the segment's own code outside of its ops.

(-1, -1): what lies between segments.

In a profiled inference a segment of n ops has one more, n: its own code after the last.
"""


@dataclass(frozen=True)
class Bucket:
    """What happened in one place.

    Attributes:
        ran: times by block.
        mispredicted: wrongly predicted branches.
        lines: for each cache, nearest first, the lines that it lacked, foreseen by a
            prefetcher and other, and the changed lines that it wrote to the next one or
            to memory.
        times: how often a part of an op was begun.
    """

    ran: Mapping[int, int]
    mispredicted: int
    lines: tuple[tuple[int, int, int], ...]
    times: int = 1


@dataclass(frozen=True)
class Block:
    """A run of instructions without a branch inside."""

    instructions: int
    code: bytes


@dataclass(frozen=True)
class Counts:
    """Of one launch.  target: QEMU's name of what it emulated, "aarch64" or "arm".
    inferences: the timed ones. parts: for each of them, those of ops that threads would
    share, which are not in `inferences`.
    """

    target: str
    inferences: tuple[Mapping[Place, Bucket], ...]
    blocks: Mapping[int, Block]
    parts: tuple[Mapping[Place, Sequence[Bucket]], ...] = ()

    @staticmethod
    def read(path: Path) -> Counts:
        """Raises ToolError when there is no such file, or it is not what the plugin
        writes, or it ends too early.
        """
        try:
            return _parse(path.read_text())
        except (OSError, ValueError, KeyError, IndexError) as e:
            raise ToolError(
                f"the plugin for QEMU left no counts ({type(e).__name__}: {e})",
                at=str(path),
                hint="QEMU 7.2 is what it is written for: qemu-aarch64 --version",
            ) from e

    def instructions(self, place: Place, inference: int = -1) -> int:
        """Instructions that ran in a place, not those of parts; 0 where nothing did."""
        bucket = self.inferences[inference].get(place)
        if bucket is None:
            return 0

        total = 0
        for block, times in bucket.ran.items():
            total += times * self.blocks[block].instructions
        return total


def plugin_option(
    plugin: Path, out: Path, caches: tuple[Cache, ...] = (), every: int = 0
) -> str:
    """What comes after QEMU's -plugin.

    Without caches neither misses nor mispredicted branches are counted. every:
    instructions of a window, for a program that marks neither segments nor ops; its
    windows are the ops -1, 0, 1, ... of segment -1. 0: none.
    """
    option = f"{plugin},out={out}"
    if not caches:
        return option

    sizes: list[str] = []
    for cache in caches:
        shared = ":shared" if cache.shared else ""
        sizes.append(f"{cache.kib}:{cache.ways}{shared}")
    option += ",caches=" + "+".join(sizes)
    return f"{option},every={every}" if every else option


def _parse(text: str) -> Counts:
    """Return the counts of a file's text.

    Raises ValueError, KeyError or IndexError for a text that the plugin does not write.
    """
    reader = _Reader()
    for line in text.splitlines():
        reader.read_line(line)
    return reader.counts()


class _Reader:
    """Collects the lines of the plugin.

    The lines of a bucket's or part's blocks follow it.
    """

    def __init__(self) -> None:
        self._target = ""
        self._inferences: list[dict[Place, Bucket]] = []
        self._parts: list[dict[Place, list[Bucket]]] = []
        self._blocks: dict[int, Block] = {}
        self._ran: dict[int, int] = {}

    def read_line(self, line: str) -> None:
        """Add the counts in a line of the plugin's output."""
        kind, *words = line.split()
        if kind == "ran":
            block = int(words[0])
            self._ran[block] = int(words[1])
        elif kind in ("bucket", "part"):
            self._begin_bucket(kind, [int(word) for word in words])
        elif kind == "inference":
            self._inferences.append({})
            self._parts.append({})
        elif kind == "block":
            code = bytes.fromhex(words[2])
            self._blocks[int(words[0])] = Block(int(words[1]), code)
        elif kind == "target":
            self._target = words[0]
        else:
            raise ValueError(f"unexpected line {line[:60]!r}")

    def _begin_bucket(self, kind: str, words: list[int]) -> None:
        """Begin a bucket, or that of a part, to which the next blocks belong."""
        self._ran = {}
        if kind == "bucket":
            segment, op, *numbers = words
            bucket = _bucket(self._ran, numbers)
            self._inferences[-1][segment, op] = bucket
            return

        # The lines of an op's parts come in their order.
        segment, op, _, times, *numbers = words
        parts = self._parts[-1].setdefault((segment, op), [])
        parts.append(_bucket(self._ran, numbers, times))

    def counts(self) -> Counts:
        """Return the counts, if they are complete."""
        if not self._inferences:
            raise ValueError("no inference was marked")

        ran: set[int] = set()
        for inference in self._inferences:
            for bucket in inference.values():
                ran.update(bucket.ran)
        for places in self._parts:
            for parts in places.values():
                for bucket in parts:
                    ran.update(bucket.ran)

        # A text that ends early may lack the code of blocks.
        missing = ran - set(self._blocks)
        if missing:
            raise ValueError(f"{len(missing)} blocks lack their code")

        inferences = tuple(self._inferences)
        return Counts(self._target, inferences, self._blocks, tuple(self._parts))


def _bucket(ran: dict[int, int], numbers: Sequence[int], times: int = 1) -> Bucket:
    """Return the bucket of the numbers of a line.

    ran: is filled later.
    numbers: the mispredicted branches, then three for each cache.
    times: how often a part was begun.
    """
    mispredicted = numbers[0]
    lines = zip(numbers[1::3], numbers[2::3], numbers[3::3], strict=True)
    return Bucket(ran, mispredicted, tuple(lines), times)
