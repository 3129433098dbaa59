"""Runs several samples through one graph in lockstep.

All samples are at the same value at any time, so that a step can correct an operation
by what all of them read there, before any of them goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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
    """Run every sample in a thread of its own; the threads meet at the values of `at`.

    Memory: an arena for each sample, and the scratch of the kernels for each core.

    meet: called with a value and its arrays, in the order of the samples. No consumer
        of the value has run yet on any sample, so that changes of the graph count for
        all samples.

    Raises what a run or `meet` raises.
    """
    arrays: list[Array] = [np.empty(0)] * len(samples)
    # The value where the threads meet.
    meeting: list[Value] = []
    barrier = Barrier(len(samples), lambda: meet(meeting[0], arrays))
    computing = Semaphore(cores())

    def run_sample(i: int) -> None:
        def observe(v: Value, array: Array) -> None:
            if v not in at:
                return
            arrays[i] = array
            meeting[:] = [v]
            # A thread that waits leaves its core to another one.
            computing.release()
            try:
                barrier.wait()
            finally:
                computing.acquire()

        try:
            with computing:
                run(samples[i], observe)
        except BaseException:
            # Without that the other threads would wait for ever.
            barrier.abort()
            raise

    with ThreadPoolExecutor(len(samples)) as pool:
        futures = [pool.submit(run_sample, i) for i in range(len(samples))]
    _raise_first(futures)


def _raise_first(futures: Sequence[Future[None]]) -> None:
    """Raise the error of a thread, if there is one.

    The threads that only met a broken barrier do not know the reason.
    """
    errors = [error for future in futures if (error := future.exception())]
    reasons = [e for e in errors if not isinstance(e, BrokenBarrierError)]
    for error in (*reasons, *errors):
        raise error


def living(graph: Graph) -> int:
    """Return the largest number of bytes of values that are alive at once."""
    # Outputs live until the end.
    last_use = {v: i for i, op in enumerate(graph.ops) for v in op.inputs}
    last_use |= dict.fromkeys(graph.outputs, len(graph.ops))
    alive = sum(v.type.nbytes for v in graph.inputs)
    peak = alive
    for i, op in enumerate(graph.ops):
        # Results live beside the inputs that they are computed from.
        alive += sum(v.type.nbytes for v in op.outputs)
        peak = max(peak, alive)
        # A result that nothing reads dies at once.
        for v in {*op.inputs, *op.outputs}:
            if v.const is None and last_use.get(v, i) == i:
                alive -= v.type.nbytes

    return peak
