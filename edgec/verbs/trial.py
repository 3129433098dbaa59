"""Tries one kernel call in every legal way on a device.

A bundle of its own is built for the call, run once to check the results, and measured.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edgec_devices.boards import ArchTarget
from edgec_devices.device import Device, device_for
from edgec_devices.measurement import Measurement, MeasuringPlan
from edgec_devices.temporary import temporary_folder
from edgec_runtime import Bundle, Contents, SegmentInfo, TensorInfo, write_bundle
from edgec_runtime.bundle.archive import WEIGHTS_FILE

from edgec.emit.c import CSRC
from edgec.emit.candidates import ELSEWHERE, OFF, SEGMENT, TrialSource, trial_source
from edgec.emit.program import DESCR
from edgec.errors import DeviceError, EdgecError
from edgec.ir import Array, KernelCall, TensorType
from edgec.schedule.cores import Core
from edgec.schedule.records import Record, call_of_record
from edgec.schedule.variant import Schedule, Variant, legal
from edgec.toolchain.build import build
from edgec.toolchain.cc import Compiler
from edgec.version import VERSION

FLOAT_OFF = 1e-4
"""The largest difference of a float result, as a part of its range.

Integers must be the same bits.
"""
MEASURED_SECONDS = 1.0
"""How long each call is measured, about, where time passes; the candidates take turns
all the while.
"""
LAUNCHES = 4
"""How often the program is started: half of the launches choose, the others tell how
fast the choice is.
"""
MIN_PROFILED_RUNS = 3
MAX_PROFILED_RUNS = 200
PROBE = MeasuringPlan(rounds=1, runs=3, seconds=0.01, warmup=0.01, profiled=1)
"""A short measurement, from which follows how many runs fill `MEASURED_SECONDS`."""
MAX_INPUT = 1000
"""The largest magnitude of integer inputs."""

_device_in_use = threading.Lock()
"""Held while a device measures: nothing else may run on it."""

Candidates = Sequence[tuple[Variant, Schedule]]


@dataclass(frozen=True)
class ScheduleTrial:
    """A call to try, and where; it can go to another process or machine.

    Attributes:
        signature: the key of the call in the database.
        call: the call as in report/calls.json.
        core: the core whose schedules are tried.
        board: the name of the board.
        target: the architecture to compile for.
        url: the device.
        timeout: seconds for which nothing may move on the way to the device.
    """

    signature: str
    call: Record
    core: Core
    board: str
    target: ArchTarget
    url: str
    timeout: float


@dataclass(frozen=True)
class TrialOutcome:
    """The times of all candidates, in the order of `legal`.

    Attributes:
        ms: the times to choose by; empty where the device has another core.
        again: times of other launches, which the choice cannot flatter.
        estimated: whether they are estimates.
    """

    ms: tuple[float, ...] = ()
    again: tuple[float, ...] = ()
    estimated: bool = False


def try_out(trial: ScheduleTrial) -> TrialOutcome:
    """Build, check and measure all candidates of a call.

    Raises EdgecError, with the name of a candidate whose result is wrong.
    """
    call = call_of_record(trial.call)
    candidates = legal(call, trial.core)
    calls = [v.applied(call, trial.core, s) for v, s in candidates]
    source = trial_source(call, calls, trial.core)
    device = device_for(trial.url, trial.timeout)

    # Estimates do not depend on what else this machine does.
    alone = contextlib.nullcontext() if is_model(trial.url) else _device_in_use
    with temporary_folder("tune") as folder:
        path = folder / "trial.edgec"
        _write(path, trial, source)
        with Bundle.open(path) as bundle, alone:
            inputs = _inputs(source.tensors, source.inputs)
            try:
                differences = device.run(bundle, inputs)[OFF]
            except DeviceError as e:
                raise DeviceError(
                    f"{call.kernel} could not be tried: {e.what}",
                    trial.signature,
                    e.hint,
                ) from e
            if np.all(differences == ELSEWHERE):
                return TrialOutcome()

            _check(trial, call, candidates, differences)
            return _measured(device, bundle, len(candidates))


def is_model(url: str) -> bool:
    """Return whether a device's times are estimates of a model.

    They do not depend on what else this machine does.
    """
    return url.startswith("emulated:")


def _write(path: Path, trial: ScheduleTrial, source: TrialSource) -> None:
    """Build the program of a trial, and write its bundle."""
    target = trial.target
    compiler = Compiler.zig(target.library, target.program, target.mcpu)
    texts = {target.name: source.texts}
    built = build(texts, CSRC, {target.name: compiler}, flags=source.flags)
    binaries = built[target.name]

    # The smallest bundle that a device accepts: one segment, no task, no labels.
    library = f"lib/{target.name}/libmodel.so"
    program = f"bin/{target.name}/main"
    files = {library: binaries.library, program: binaries.program}
    weights = {}
    if source.weights:
        files[WEIGHTS_FILE] = source.weights
        weights[target.name] = WEIGHTS_FILE

    tensors = {}
    for name, t in source.tensors.items():
        tensors[name] = TensorInfo(name, t.shape, DESCR[t.dtype], None)
    segment = SegmentInfo(SEGMENT, "cpu", source.inputs, (OFF,), source.arena)
    contents = Contents(
        edgec=VERSION,
        name=SEGMENT,
        target=trial.board,
        board=trial.board,
        inputs=source.inputs,
        outputs=(OFF,),
        state=(),
        tensors=tensors,
        segments=(segment,),
        libraries={target.name: library},
        programs={target.name: program},
        weights=weights,
        threads=1,
        labels=None,
        preprocess={},
        task=None,
        toolchain={},
        verification={},
        quantization={},
        license={},
        graph=source.graph,
        cascade=None,
    )
    write_bundle(path, contents, files)


def _inputs(
    tensors: Mapping[str, TensorType], names: tuple[str, ...]
) -> dict[str, Array]:
    """Return inputs, always the same: integers of their whole type, floats about 0."""
    rng = np.random.default_rng(0)
    inputs = {}
    # The same seed for every candidate and every run: differences are of the code.
    for name in names:
        t = tensors[name]
        if t.np_dtype.kind == "f":
            inputs[name] = rng.normal(size=t.shape).astype(t.np_dtype)
            continue
        if t.dtype == "bool":
            low = 0
            high = 1
        else:
            info = np.iinfo(t.np_dtype)
            low = max(info.min, -MAX_INPUT)
            high = min(info.max, MAX_INPUT)
        inputs[name] = rng.integers(low, high + 1, t.shape).astype(t.np_dtype)

    return inputs


def _check(
    trial: ScheduleTrial, call: KernelCall, candidates: Candidates, differences: Array
) -> None:
    """Raise EdgecError for a candidate whose result is not that of the plain kernel.

    differences: of each candidate, a part of the range for floats, else bytes.
    """
    # The last of the calls that run as one writes the result.
    last = (call, *call.then)[-1]
    result = list(last.pointers())[-1]
    is_float = result.value.type.dtype == "float32"
    allowed = FLOAT_OFF if is_float else 0
    for (variant, schedule), difference in zip(
        candidates, differences.tolist(), strict=True
    ):
        # NaN is no allowed difference.
        if difference <= allowed:
            continue
        if is_float:
            by = f"by {difference:.2g} of the range"
        else:
            by = f"in {difference:.0f} bytes"
        values = ", ".join(f"{k}={n}" for k, n in schedule.items())
        raise EdgecError(
            f"{variant.name} with {values or 'no parameters'} differs {by} from "
            f"{call.kernel}",
            at=f"{trial.signature} on {trial.url}",
            hint="report it with the bundle; --tuned none compiles without searches",
        )


def _measured(device: Device, bundle: Bundle, count: int) -> TrialOutcome:
    """Measure the candidates of a trial's bundle. count: how many there are.

    Raises EdgecError where there are neither times nor estimates.
    """
    indices = [TrialSource.function(i) for i in range(count)]
    probe = device.measure(bundle, PROBE)
    if not probe.launches:
        return _estimated(device, probe, indices)

    # As many runs as fill the time, whatever one of them takes.
    run_ns = statistics.median(n for p in probe.profiles for n in p.total)
    total_ns = MEASURED_SECONDS * 1e9
    runs = total_ns / (2 * max(run_ns, 1)) / LAUNCHES
    profiled = int(min(max(runs, MIN_PROFILED_RUNS), MAX_PROFILED_RUNS))
    plan = MeasuringPlan(LAUNCHES, 3, 0.01, 0.01, profiled)
    measurement = device.measure(bundle, plan)

    # A candidate that was lucky in the launches that choose is not in the others.
    times = []
    for profiles in (measurement.profiles[::2], measurement.profiles[1::2]):
        ms = []
        for i in indices:
            ns = statistics.median(n for p in profiles for n in p.ops[0][i])
            ms.append(ns / 1e6)
        times.append(tuple(ms))
    chosen_by, others = times

    return TrialOutcome(chosen_by, others, measurement.device.emulated)


def _estimated(
    device: Device, probe: Measurement, indices: Sequence[int]
) -> TrialOutcome:
    """Return the estimates of a device without launches.

    indices: the candidates' functions. Raises EdgecError without estimates.
    """
    ops = probe.estimates[0].ops
    if not ops:
        why = "; ".join(probe.notes) or probe.estimates[0].how
        raise EdgecError(
            f"there are no estimates to choose by: {why}",
            at=device.url,
            hint="edgec doctor",
        )

    # Estimates have no noise: the same ones serve for both.
    ms = tuple(ops[i].ms for i in indices)

    return TrialOutcome(ms, ms, True)
