"""Stage 3 of a compile: the samples for calibration and for verification."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgec_runtime import Preprocess

from edgec.ir import Calls, Graph, Run
from edgec.quantize.change.convert import random_sample
from edgec.quantize.observe.calibration import (
    HELD_BACK,
    Sample,
    ahead,
    load_calibration,
    split,
)

FIXTURES = (
    Path(__file__).parents[1] / "_fixtures",
    Path(__file__).parents[2] / "fixtures",
)
"""Where the wheel, and where a checkout, has the demo's networks and photos."""
CALIBRATION_SAMPLES = 100
"""The largest number of samples, drawn from all files: ranges hardly change beyond."""


@dataclass(frozen=True)
class Samples:
    """Inputs of a model.

    Attributes:
        calibrate: the samples to calibrate with.
        verify: the samples to verify with.
        source: the origin of the samples to verify with, in words.
        seen: whether the samples to verify with are also for calibration.
    """

    calibrate: Sequence[Sample]
    verify: Sequence[Sample]
    source: str
    seen: bool


@dataclass(frozen=True)
class SampleReader:
    """Reads samples for the inputs of a graph.

    The files of a graph with state are a sequence of calls; each sample then has the
    state after the calls before it.

    Attributes:
        graph: the graph.
        preprocess: the preprocessing of its image inputs, by name.
        runner: returns a function that runs the graph this number of times.
    """

    graph: Graph
    preprocess: Mapping[str, Preprocess]
    runner: Callable[[Graph, int], Run]

    def read(self, calibrate: Path | None, validate: Path | None) -> Samples:
        """Read both folders or files, each of which may be missing.

        Without data there is reproducible noise to verify with. Raises InputError for
        data that do not fit the inputs.
        """
        known: Sequence[Sample] = ()
        held: Sequence[Sample] = [random_sample(self.graph)]
        source = "noise"
        seen = False
        if calibrate is not None:
            every = self._load(calibrate)
            known, held = split(every, CALIBRATION_SAMPLES, hold=validate is None)
            source = f"{_name(calibrate)}, held back from calibration"
            # Too few samples to hold some back: agreement is then easier, so it is said.
            if not held:
                held = known
                source = f"{_name(calibrate)}, the same as for calibration"
                seen = True
        if validate is not None:
            seen = calibrate is not None and validate.resolve() == calibrate.resolve()
            source = _name(validate)
            if seen:
                source = f"{source}, the same as for calibration"
            held = self._load(validate)
        return Samples(known, held, source, seen)

    def _load(self, path: Path) -> Sequence[Sample]:
        """Read all samples of a folder or a file."""
        # A photo cannot tell which of several inputs it is for.
        inputs = self.graph.given()
        preprocess = self.preprocess.get(inputs[0].name) if len(inputs) == 1 else None
        samples = load_calibration(path, inputs, preprocess)
        if not self.graph.state:
            return samples
        # Each call needs the one before it, so they are all run here, and no more of
        # them than are used.
        samples = samples[: CALIBRATION_SAMPLES + HELD_BACK]
        calls = Calls(self.graph, self.runner(self.graph, len(samples)))
        return [*calls.inputs(ahead(samples))]


def _name(path: Path) -> str:
    """Return the name of a folder or a file for people."""
    return f"{path.name}/" if path.is_dir() else path.name
