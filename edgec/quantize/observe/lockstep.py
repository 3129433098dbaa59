"""Several samples through one graph at once, all at the same value at any time."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, BrokenBarrierError, Semaphore

import numpy as np

from edgec.executors import cores
from edgec.ir import Array, Graph, Run, Value
from edgec.quantize.observe.calibration import Sample


def run_together(
    run: Run,
    samples: Sequence[Sample],
    at: Container[Value],
    meet: Callable[[Value, Sequence[Array]], None],
) -> None:
    """Run all samples, each in a thread of its own, and let them wait for each other at
    these values.

    meet: is given a value and its arrays in the order of the samples; nothing that
    reads the value has run yet on any of them, so what it changes in the graph goes for
    all. Memory: an arena for each sample, and what a kernel computes with for each
    core.
    """
    arrays: list[Array] = [np.empty(0)] * len(samples)
    now: list[Value] = []
    barrier = Barrier(len(samples), lambda: meet(now[0], arrays))
    computing = Semaphore(cores())

    def one(i: int) -> None:
        def observe(v: Value, array: Array) -> None:
            if v in at:
                arrays[i], now[:] = array, [v]
                computing.release()
                try:
                    barrier.wait()
                finally:
                    computing.acquire()

        try:
            with computing:
                run(samples[i], observe)
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(len(samples)) as pool:
        errors = [
            e
            for future in [pool.submit(one, i) for i in range(len(samples))]
            if (e := future.exception())
        ]
    if errors:
        raise next(
            (e for e in errors if not isinstance(e, BrokenBarrierError)), errors[0]
        )


def living(graph: Graph) -> int:
    """Bytes of the values that are alive at once, at most."""
    last = {v: i for i, op in enumerate(graph.ops) for v in op.inputs}
    last |= dict.fromkeys(graph.outputs, len(graph.ops))
    now = sum(v.type.nbytes for v in graph.inputs)
    most = now
    for i, op in enumerate(graph.ops):
        now += sum(v.type.nbytes for v in op.outputs)
        most = max(most, now)
        now -= sum(
            v.type.nbytes
            for v in {*op.inputs, *op.outputs}
            if v.const is None and last.get(v, i) == i
        )
    return most
