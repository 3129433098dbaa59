"""The Edge TPU segments of several networks, compiled together.

Only models of one run of edgetpu_compiler share the on-chip memory for parameters. Those
that are compiled alone each claim all of it, and the Edge TPU then loads a network's
parameters anew whenever it follows another ("Co-compiling multiple models", Coral
documentation).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from edgec.compiler.compilation import PlacedNetwork
from edgec.compiler.edgetpu_loop import CompilerOutcome
from edgec.emit.tflite import write_tflite
from edgec.errors import ToolError
from edgec.steps import Progress
from edgec.toolchain.edgetpu import PROGRAM
from edgec.toolchain.edgetpu.driver import CompiledSegment, compile_segments
from edgec.toolchain.edgetpu.runners import Runner


def compile_together(
    placed: Mapping[str, PlacedNetwork],
    order: Sequence[str],
    runner: Runner | None,
    say: Progress,
) -> tuple[dict[str, PlacedNetwork], str]:
    """Compile the segments of all networks in one run of edgetpu_compiler.

    Args:
        placed: the networks after their own runs of edgetpu_compiler, by name.
        order: the names of the networks, those that run most often first: the first
            ones get the on-chip memory.
        runner: runs edgetpu_compiler; None: it does not run.
        say: is called with the step.

    Returns:
        the networks, and a line for the summary, "" if nothing is shared. They stay as
        they are if the segments cannot be compiled together.
    """
    models = dict(_models(placed, order))
    shared = {label.rpartition("-")[0] for label in models}
    if runner is None or len(shared) < 2:
        return dict(placed), ""

    names = ", ".join(name for name in order if name in shared)
    say(f"asking {PROGRAM}: {names} together")
    alone = f"{names} share no memory of the Edge TPU: each loads its parameters anew"
    try:
        results = compile_segments(models, runner)
    except ToolError as e:
        return dict(placed), f"{alone} ({e.what})"
    if any(result.data is None for result in results.values()):
        return dict(placed), f"{alone} ({PROGRAM} could not compile them together)"

    together: dict[str, PlacedNetwork] = {}
    for name, network in placed.items():
        together[name] = _with_results(name, network, results)
    return together, f"{names} share the memory of the Edge TPU{_memory(results)}"


def _models(
    placed: Mapping[str, PlacedNetwork], order: Sequence[str]
) -> Iterator[tuple[str, bytes]]:
    """Yield the label and the .tflite of each segment that was compiled whole."""
    for name in order:
        outcome = placed[name].outcome
        if outcome is None:
            continue
        for segment in placed[name].lowered.partition.segments:
            result = outcome.segments.get(segment.name)
            if result is not None and result.data is not None:
                yield _label(name, segment.name), write_tflite(segment.in_tflite)


def _label(network: str, segment: str) -> str:
    """Return the name of a segment among those of all networks."""
    # The name of a segment has no hyphen.
    return f"{network}-{segment}"


def _with_results(
    name: str, network: PlacedNetwork, results: Mapping[str, CompiledSegment]
) -> PlacedNetwork:
    """Return a network with the segments that were compiled with the others."""
    outcome = network.outcome
    if outcome is None:
        return network
    segments: dict[str, CompiledSegment] = {}
    for segment, alone in outcome.segments.items():
        together = results.get(_label(name, segment), alone)
        segments[segment] = replace(together, name=segment)
    joined: CompilerOutcome = replace(
        outcome, segments=segments, together=True, calls=outcome.calls + 1
    )
    return replace(network, outcome=joined)


def _memory(results: Mapping[str, CompiledSegment]) -> str:
    """Return where the parameters of all segments lie; "" if a log does not tell."""
    cached = 0
    streamed = 0
    for result in results.values():
        log = result.log
        if log.cached_bytes is None or log.streamed_bytes is None:
            return ""
        cached += log.cached_bytes
        streamed += log.streamed_bytes
    return (
        f": {cached / 1e6:.2f} MB of parameters on the chip, "
        f"{streamed / 1e6:.2f} MB sent each time"
    )
