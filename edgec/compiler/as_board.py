"""The check of the board's own code, in an emulator if this machine is another."""

from __future__ import annotations

from edgec_devices.links.emulated import Emulated
from edgec_runtime import Bundle, DeviceError
from edgec_runtime.session.session import machine_target

from edgec.compiler.lower import Lowered
from edgec.compiler.segment_checks import SegmentChecker
from edgec.errors import EdgecError
from edgec.steps import Progress

MAX_EMULATED_MACS = 2e9
"""The limit of emulated multiply-accumulates in float: some 15 seconds.

It is a count and no time, so the same inputs give the same bundle.
"""
INTEGER_SHARE = 1 / 8
"""The time of an integer multiply-accumulate, as a part of a float one's."""


def check_as_board(
    bundle: Bundle, lowered: Lowered, checker: SegmentChecker, say: Progress
) -> str:
    """Run the program for the board's first target on the first sample.

    Each segment is checked. Return the note on code that was not run, with the reason;
    "" if all was, or if the board's code is this machine's.

    Raises EdgecError if the program fails.
    """
    board = lowered.target.board
    target = board.targets[0]
    if target.name == machine_target():
        return ""
    how = f"{target.qemu_cpu} code"
    # A missing emulator is no error, as most machines have none: the report says so.
    device = Emulated(board)
    reason = _too_much(lowered) or device.lacks(bundle)
    if reason:
        return f"as {how}: {reason}"
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
    # The sample has the inputs of the first segment, the device returned all others.
    for s in lowered.partition.segments:
        checker(s, tensors.__getitem__, how)
    return ""


def _too_much(lowered: Lowered) -> str:
    """Return why a model is too large to be emulated, or ""."""
    # qemu emulates floats in software, so integers are far cheaper.
    weighted = 0.0
    macs = 0
    for s in lowered.partition.segments:
        for op in s.graph.ops:
            count = op.spec.macs(op)
            is_float = op.outputs[0].type.np_dtype.kind == "f"
            weighted += count * (1 if is_float else INTEGER_SHARE)
            macs += count
    if weighted <= MAX_EMULATED_MACS:
        return ""
    again = f"edgec run --on emulated:{lowered.target.board.name}"
    return f"its {macs / 1e9:.1f} G MACs are too many for an emulator ({again} runs it)"
