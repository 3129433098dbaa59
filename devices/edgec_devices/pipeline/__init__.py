"""Cycles that our C takes on the boards' 64-bit cores, estimated from what an emulated run executes.

    counts = Counts.read(file)                              what csrc/block_count.c counted under QEMU
    places = estimate(counts, board.core, board.caches)     {(segment, op): Estimate(instructions, cycles ...)}

    cycles = sum over blocks of executions x cycles of the block    steady.py, with the times of cores/<core>.toml
           + missed lines x their cost                              boards.Cache, simulated with 16 streams prefetched
           + mispredicted branches x their cost                     simulated with a history of 16 branches

How good: `make pipeline-table` compares it with picycles, which has llvm-mca's cycles of a block and is itself within 8
to 11 % rms of published times of whole networks.  On 14 networks, int8 and float, and their 516 ops of 10,000
instructions or more, ours / picycles:

    core         networks                     ops: median, half, nine in ten within, worst
    Cortex-A53   0.85 to 1.00, median 0.91    0.93, 9 %, 24 %, 0.49 (softmax)
    Cortex-A72   0.90 to 1.00, median 0.98    0.98, 2 %, 18 %, 0.47 (hard-swish)
    Cortex-A76   0.94 to 1.04, median 0.99    0.99, 1 %,  7 %, 0.42 (float add)

Where they are far apart llvm-mca's model is not the core's: it divides on an A72 as slowly as an A57 does, makes an
address that a store moves on wait for the store's data, and finishes in order on the A53.  The cores' files were
settled with seven of the networks in view; two figures in them were chosen to agree, the A72's `dispatch` and the
second cycle of a 128-bit SADALP, which picycles fitted to published times, as the costs of missed lines.  An
instruction that has no time counts as the core's file says under `unknown`, and the Estimate reports it; in these
networks none did.

Not modelled: the overlap of neighbouring blocks and of misses with computation; instruction cache, TLB, fetch bubbles
of taken branches; a load that waits for a store to the same address; other masters on the memory bus; more than one
thread; 32-bit code.  So a few per cent between two variants of a kernel are the model's opinion, not evidence.
"""

from edgec_devices.pipeline.core import Core
from edgec_devices.pipeline.counts import Block, Bucket, Counts, Place, plugin_option
from edgec_devices.pipeline.estimate import Estimate, estimate, estimate_parts

__all__ = ["Block", "Bucket", "Core", "Counts", "Estimate", "Place", "estimate", "estimate_parts", "plugin_option"]
