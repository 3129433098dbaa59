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
    """What happened in one place.  ran: times by block.  misses: lines per cache,
    (foreseen by a prefetcher, other).
    """

    ran: Mapping[int, int]
    mispredicted: int
    misses: tuple[tuple[int, int], ...]


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
        if bucket:
            return sum(n * self.blocks[b].instructions for b, n in bucket.ran.items())
        return 0


def plugin_option(plugin: Path, out: Path, caches: tuple[Cache, ...] = ()) -> str:
    """What comes after QEMU's -plugin.

    Without caches neither misses nor mispredicted branches are counted.
    """
    if caches:
        simulated = ",caches=" + "+".join(f"{c.kib}:{c.ways}" for c in caches)
    else:
        simulated = ""
    return f"{plugin},out={out}{simulated}"


def _parse(text: str) -> Counts:
    target = ""
    inferences: list[dict[Place, Bucket]] = []
    parts: list[dict[Place, list[Bucket]]] = []
    blocks: dict[int, Block] = {}
    ran: dict[int, int] = {}
    for line in text.splitlines():
        kind, *words = line.split()
        if kind == "ran":
            ran[int(words[0])] = int(words[1])
        elif kind == "bucket":
            ran = {}
            segment, op, *numbers = map(int, words)
            inferences[-1][segment, op] = _bucket(ran, numbers)
        elif kind == "part":
            ran = {}
            segment, op, _, *numbers = map(int, words)
            parts[-1].setdefault((segment, op), []).append(_bucket(ran, numbers))
        elif kind == "inference":
            inferences.append({})
            parts.append({})
        elif kind == "block":
            blocks[int(words[0])] = Block(int(words[1]), bytes.fromhex(words[2]))
        elif kind == "target":
            target = words[0]
        else:
            raise ValueError(f"unexpected line {line[:60]!r}")
    if not inferences:
        raise ValueError("no inference was marked")
    every = [
        *(b for i in inferences for b in i.values()),
        *(b for i in parts for each in i.values() for b in each),
    ]
    if missing := {b for bucket in every for b in bucket.ran} - set(blocks):
        raise ValueError(f"{len(missing)} blocks lack their code")
    return Counts(target, tuple(inferences), blocks, tuple(parts))


def _bucket(ran: dict[int, int], numbers: Sequence[int]) -> Bucket:
    """ran: is filled later."""
    return Bucket(
        ran, numbers[0], tuple(zip(numbers[1::2], numbers[2::2], strict=True))
    )
