"""Who tries the candidates of a recipe in a compile, and where it is remembered what
they were.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import Executor
from pathlib import Path

from edgec_devices.device import TIMEOUT_S
from edgec_runtime.bundle.cache import cache_dir

from edgec.compiler.workers import Workers
from edgec.executors import cores
from edgec.ir import Graph
from edgec.quantize.hands import CandidateExecutor
from edgec.quantize.recipe import Recipe
from edgec.toolchain.store import Store

CACHED_BYTES = 16 << 20
"""What is remembered of candidates may take: some kB each."""

_A_WORKER = 256 << 20
_TIMES_THE_MODEL = 16
"""What a candidate that is being made takes, about: so many bytes, and so many times
those of the weights.
"""


@contextlib.contextmanager
def hands(
    recipe: Recipe, graph: Graph, workers: str | None, executor: Executor | None
) -> Iterator[CandidateExecutor]:
    """The executor, or what `--workers` says; by default threads, one for each core
    while there is memory for them.
    """
    store = Store(cache_dir("quantize"), CACHED_BYTES)
    asked = Workers.of(workers)
    threads = _threads(graph)
    with contextlib.ExitStack() as stack:
        if not recipe.chooses:
            executor = None
        elif executor is None and (asked.address or (asked.threads or threads) > 1):
            executor = stack.enter_context(asked.executor(threads, TIMEOUT_S))
        yield CandidateExecutor(executor, store)
    store.trim()


def _threads(graph: Graph) -> int:
    weights = sum(v.type.nbytes for v in graph.constants())
    room = _available() // (_A_WORKER + _TIMES_THE_MODEL * weights)
    return max(1, min(cores(), room))


def _available() -> int:
    """Bytes of memory that programs can have without swapping; very many where the
    system does not say.
    """
    with contextlib.suppress(OSError, ValueError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        return (
            int(
                next(
                    line for line in lines if line.startswith("MemAvailable:")
                ).split()[1]
            )
            << 10
        )
    return 1 << 62
