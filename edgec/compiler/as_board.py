"""The check after a compile of the code that a board will run: under an emulator, where
this machine is another.
"""

from __future__ import annotations

from edgec_devices.links.emulated import Emulated
from edgec_runtime import Bundle, DeviceError
from edgec_runtime.session.session import machine_target

from edgec.compiler.lower import Lowered
from edgec.compiler.segment_checks import SegmentChecker
from edgec.errors import EdgecError
from edgec.steps import Progress

_MOST = 2e9
"""Multiply-accumulates in float that are emulated: some 15 seconds.

A count, not a time, so that the same inputs give the same bundle.
"""
_INTEGER = 1 / 8
"""What one of integers takes of that."""


def check_as_board(
    bundle: Bundle, lowered: Lowered, judge: SegmentChecker, say: Progress
) -> str:
    """Run the program for the board's first target on the first sample and judge each
    segment.

    Returns what was not run here, and why; "" where nothing was left out, or the
    board's code is this machine's. Raises EdgecError where the program fails.
    """
    board = lowered.target.board
    target = board.targets[0]
    if target.name == machine_target():
        return ""
    how = f"{target.qemu_cpu} code"
    device = Emulated(board)
    why = _too_much(lowered) or device.lacks(bundle)
    if why:
        return f"as {how}: {why}"
    say("emulate")
    sample = lowered.samples.verify[0]
    try:
        tensors = {**sample, **device.segments(bundle, sample)}
    except DeviceError as e:
        raise EdgecError(
            f"verification failed: as {how}, {e.what}",
            at=lowered.graph.name,
            hint="report it with the model",
        ) from e
    for s in lowered.partition.segments:
        judge(s, tensors.__getitem__, how)
    return ""


def _too_much(lowered: Lowered) -> str:
    ops = [op for s in lowered.partition.segments for op in s.graph.ops]
    macs = sum(
        op.spec.macs(op) * (1 if op.outputs[0].type.dtype == "float32" else _INTEGER)
        for op in ops
    )
    if macs <= _MOST:
        return ""
    again = f"edgec run --on emulated:{lowered.target.board.name}"
    return (
        f"its {sum(op.spec.macs(op) for op in ops) / 1e9:.1f} G MACs are too many "
        f"for an emulator ({again} runs it)"
    )
