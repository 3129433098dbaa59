"""One call tried in every legal way on a device: a bundle of its own is built, run once
to check it, and measured.
"""

from __future__ import annotations

import contextlib
import statistics
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from edgec_devices.boards import ArchTarget
from edgec_devices.device import Device, device_for
from edgec_devices.measurement import MeasuringPlan
from edgec_devices.temporary import temporary_folder
from edgec_runtime import Bundle, Contents, SegmentInfo, TensorInfo, write_bundle
from edgec_runtime.bundle.archive import WEIGHTS_FILE

from edgec.emit.c import CSRC
from edgec.emit.candidates import ELSEWHERE, OFF, SEGMENT, TrialSource, trial_source
from edgec.emit.program import DESCR
from edgec.errors import DeviceError, EdgecError
from edgec.ir import Array, KernelCall, TensorType
from edgec.schedule.cores import Core
from edgec.schedule.records import Record, again
from edgec.schedule.variant import Schedule, Variant, legal
from edgec.toolchain.build import build
from edgec.toolchain.cc import Compiler
from edgec.version import VERSION

FLOAT_OFF = 1e-4
"""Of the range of a result in float: further off is wrong.

Integers are the same bits.
"""

_SECONDS = 1.0
"""For about so long each call is measured where time passes; the candidates take turns
all the while.
"""

_LAUNCHES = 4
_PROBE = MeasuringPlan(rounds=1, runs=3, seconds=0.01, warmup=0.01, profiled=1)

_device_in_use = threading.Lock()
"""What is measured has the device for itself."""


@dataclass(frozen=True)
class ScheduleTrial:
    """What to try and where, for another process or machine. url: of the device. call:
    as in report/calls.json.
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
    """By candidate, in the order of `legal`. ms: to choose by. again: from other
    launches, which the choice cannot flatter. Without any, the device has another core.
    """

    ms: tuple[float, ...] = ()
    again: tuple[float, ...] = ()
    estimated: bool = False


def try_out(trial: ScheduleTrial) -> TrialOutcome:
    """Build, check and measure.

    Raises EdgecError; of a candidate that computes something else, with its name.
    """
    call = again(trial.call)
    ways = legal(call, trial.core)
    made = trial_source(
        call, [v.apply(call, trial.core, s) for v, s in ways], trial.core
    )
    device = device_for(trial.url, trial.timeout)
    with temporary_folder("tune") as tmp:
        path = tmp / "trial.edgec"
        _write(path, trial, made)
        with (
            Bundle.open(path) as bundle,
            contextlib.nullcontext() if is_model(trial.url) else _device_in_use,
        ):
            try:
                off = device.run(bundle, _inputs(made.tensors, made.inputs))[OFF]
            except DeviceError as e:
                raise DeviceError(
                    f"{call.kernel} could not be tried: {e.what}",
                    trial.signature,
                    e.hint,
                ) from e
            if np.all(off == ELSEWHERE):
                return TrialOutcome()
            _check(trial, call, ways, off)
            return _measured(device, bundle, len(ways))


def is_model(url: str) -> bool:
    """Whether a device's times are estimates that do not depend on what else this
    machine does.
    """
    return url.startswith("emulated:")


def _write(path: Path, trial: ScheduleTrial, made: TrialSource) -> None:
    target = trial.target
    cc = Compiler.zig(target.library, target.program, target.mcpu)
    binaries = build(
        {target.name: made.texts}, CSRC, {target.name: cc}, flags=made.flags
    )[target.name]
    library = f"lib/{target.name}/libmodel.so"
    program = f"bin/{target.name}/main"
    files = {library: binaries.library, program: binaries.program}
    files |= {WEIGHTS_FILE: made.weights} if made.weights else {}
    contents = Contents(
        edgec=VERSION,
        name=SEGMENT,
        target=trial.board,
        board=trial.board,
        inputs=made.inputs,
        outputs=(OFF,),
        state=(),
        tensors={
            n: TensorInfo(n, t.shape, DESCR[t.dtype], None)
            for n, t in made.tensors.items()
        },
        segments=(SegmentInfo(SEGMENT, "cpu", made.inputs, (OFF,), made.arena),),
        libraries={target.name: library},
        programs={target.name: program},
        weights={target.name: WEIGHTS_FILE} if made.weights else {},
        threads=1,
        labels=None,
        preprocess={},
        task=None,
        toolchain={},
        verification={},
        quantization={},
        graph=made.graph,
    )
    write_bundle(path, contents, files)


def _inputs(
    tensors: Mapping[str, TensorType], names: tuple[str, ...]
) -> dict[str, Array]:
    """All values of integers, floats about 0; always the same."""
    rng = np.random.default_rng(0)
    found = {}
    for n in names:
        t = tensors[n]
        if t.np_dtype.kind == "f":
            found[n] = rng.normal(size=t.shape).astype(t.np_dtype)
        else:
            info = np.iinfo(np.int8 if t.dtype == "bool" else t.np_dtype)
            low, high = (
                (0, 1)
                if t.dtype == "bool"
                else (max(info.min, -1000), min(info.max, 1000))
            )
            found[n] = rng.integers(low, high + 1, t.shape).astype(t.np_dtype)
    return found


def _check(
    trial: ScheduleTrial,
    call: KernelCall,
    ways: list[tuple[Variant, Schedule]],
    off: Array,
) -> None:
    """Raise EdgecError for a candidate whose result is not that of the plain kernel."""
    float_result = (
        list((call, *call.then)[-1].pointers())[-1].value.type.dtype == "float32"
    )
    for (v, s), far in zip(ways, off.tolist(), strict=True):
        if not far <= (FLOAT_OFF if float_result else 0):
            by = f"by {far:.2g} of the range" if float_result else f"in {far:.0f} bytes"
            values = ", ".join(f"{k}={n}" for k, n in s.items())
            raise EdgecError(
                f"{v.name} with {values or 'no parameters'} differs {by} from "
                f"{call.kernel}",
                at=f"{trial.signature} on {trial.url}",
                hint="report it with the bundle; --tuned none compiles without searches",
            )


def _measured(device: Device, bundle: Bundle, candidates: int) -> TrialOutcome:
    at = [TrialSource.function(i) for i in range(candidates)]
    found = device.measure(bundle, _PROBE)
    if not found.launches:
        ops = found.estimates[0].ops
        if not ops:
            why = "; ".join(found.notes) or found.estimates[0].how
            raise EdgecError(
                f"there are no estimates to choose by: {why}",
                at=device.url,
                hint="edgec doctor",
            )
        ms = tuple(ops[i].ms for i in at)
        return TrialOutcome(ms, ms, True)
    each = statistics.median(n for p in found.profiles for n in p.total)
    profiled = int(min(max(_SECONDS * 1e9 / (2 * max(each, 1)) / _LAUNCHES, 3), 200))
    found = device.measure(bundle, MeasuringPlan(_LAUNCHES, 3, 0.01, 0.01, profiled))
    ms, more = (
        tuple(statistics.median(n for p in part for n in p.ops[0][i]) / 1e6 for i in at)
        for part in (found.profiles[::2], found.profiles[1::2])
    )
    return TrialOutcome(ms, more, found.device.emulated)
