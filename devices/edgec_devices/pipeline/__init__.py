"""Cycles that our C takes on the boards' 64-bit cores, estimated from what an emulated
run executes.

    counts = Counts.read(file)                           what block_count.c counted under QEMU
    places = estimate(counts, board.core, board.caches)  {(segment, op): Estimate}

    cycles = sum over blocks of executions x cycles of the block   (steady.py)
             + missed lines x their cost                           (boards.Cache)
             + mispredicted branches x their cost

The times of a block follow cores/<core>.toml; caches are simulated with 16 prefetched
streams, branches with a history of 16.

How good: `make pipeline-table` compares it with picycles, which has llvm-mca's cycles
of a block and is itself within 8 to 11 % rms of published times of whole networks.
Ours / picycles, of networks, int8 and float, and of their ops of 10,000 instructions or
more:

    core         networks                            ops: within 30 %, worst
    Cortex-A53   17: 0.93 to 1.13, and mnist8 0.80   721:   96.9 %, 0.58 (a convolution of mnist8)
    Cortex-A72   20: 0.96 to 1.09                    1,264: 99.5 %, 0.54 (float add)
    Cortex-A76   15: 0.95 to 0.98                    559:   99.3 %, 0.42 (float add)

Where they are far apart llvm-mca's model is not the core's: it divides on an A72 as
slowly as an A57 does, makes an address that a store moves on wait for the store's data,
and on the A53 finishes in order, starts two FMLA by element a cycle, and gives every
call 100 cycles, which is a quarter of mnist8's.  Three things in the cores' files were
chosen to agree with these networks: the A72's `dispatch`, the A53's 128-bit loads, and
the second cycle of a 128-bit SADALP, which picycles fitted to published times, as the
costs of missed lines.  An instruction that has no time counts as the core's file says
under `unknown`, and the Estimate reports it; no kernel of ours has one.

Not modelled: the overlap of neighbouring blocks and of misses with computation;
instruction cache, TLB, fetch bubbles of taken branches; a load that waits for a store
to the same address; other masters on the memory bus; 32-bit code. Several cores are
put together from these estimates by edgec_devices.multicore.
So a few per cent between two variants of a kernel are the model's opinion, not
evidence.
"""

from edgec_devices.pipeline.core import PipelineCore
from edgec_devices.pipeline.counts import Block, Bucket, Counts, Place, plugin_option
from edgec_devices.pipeline.estimate import (
    Estimate,
    Work,
    behind_caches,
    estimate,
    estimate_parts,
    work,
)

__all__ = [
    "Block",
    "Bucket",
    "Counts",
    "Estimate",
    "PipelineCore",
    "Place",
    "Work",
    "behind_caches",
    "estimate",
    "estimate_parts",
    "plugin_option",
    "work",
]
