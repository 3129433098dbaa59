"""Opens the Edge TPU for the bundles of one session, which share it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Callable, List, Optional, Sequence, Set, Tuple, Union

from ..bundle.archive import Bundle
from ..bundle.manifest import SegmentInfo
from ..errors import DeviceError, EdgecError, InputError, did_you_mean
from ..model.interpreters import (
    EdgeTpuDelegate,
    InterpreterFactory,
    edgetpu_library,
    load_edgetpu,
)
from ..stick.compiled_interpreter import OWN, OwnStick, own_interpreter, refusal
from ..stick.driver import StickOptions, sticks
from ..stick.process import Delegate, StickModel, StickTask
from ..stick.shared_stick import shared_stick
from ..stick.stick import Stick, StickOfModel

TPU_MODES = ("auto", "delegate", "interpreter", "c")
LIBEDGETPU = "libedgetpu"
NO_DRIVER = "none"
"""The Edge TPU is not used."""
DRIVERS = ("auto", OWN, LIBEDGETPU, NO_DRIVER)
DRIVER_VARIABLE = "EDGEC_EDGETPU_DRIVER"
"""The variable of the environment that says what "auto" is: one of `DRIVERS`."""


@dataclass(frozen=True)
class EdgeTpuOptions:
    """How segments for the Edge TPU run, by the arguments of Session.

    Attributes:
        tpu: one of `TPU_MODES`
        interpreter: the interpreters to use
        driver: one of `DRIVERS`, or a function that opens the Edge TPU, given the
            interpreter's name
        timeout: time limit of an inference on it in seconds
    """

    tpu: str = "auto"
    interpreter: Union[str, InterpreterFactory, None] = None
    driver: Union[str, Delegate] = "auto"
    timeout: float = 1.0

    def check(self) -> None:
        """Raise InputError for impossible values."""
        if self.tpu not in TPU_MODES:
            what = f'tpu="{self.tpu}" is not a way to run{did_you_mean(self.tpu, TPU_MODES)}'
            raise InputError(what, hint="use " + ", ".join(TPU_MODES))
        name = self.driver_name
        if name not in ("", *DRIVERS):
            what = f'there is no driver "{name}"{did_you_mean(name, DRIVERS)}'
            raise InputError(what, hint="use " + ", ".join(DRIVERS))
        if self.driver == OWN and callable(self.interpreter):
            raise InputError(
                'driver="own" needs no interpreter, and one is given as a function',
                hint="leave the interpreter out, or the driver",
            )
        if self.tpu == "delegate" and name == NO_DRIVER:
            raise InputError(
                'driver="none" leaves the Edge TPU alone, and tpu="delegate" insists on it',
                hint=f"leave one of them out, or {DRIVER_VARIABLE}",
            )
        if name in ("auto", OWN):
            StickOptions().clock_name()
        if not self.timeout > 0:
            raise InputError(
                f"no answer can come within {self.timeout} s",
                hint="give timeout= in seconds, more than 0",
            )

    @property
    def driver_name(self) -> str:
        """One of `DRIVERS`, as asked for here or by the environment; "" for a function."""
        if callable(self.driver):
            return ""
        if self.driver == "auto":
            return os.environ.get(DRIVER_VARIABLE) or "auto"
        return self.driver

    def task(self, models: Tuple[StickModel, ...]) -> StickTask:
        """Return the task of a process that runs these models.

        Our own driver runs them on a stick on USB; Edge TPUs on PCIe need libedgetpu, as
        do models that our driver cannot run.

        Raises:
            DeviceError: there is no stick for our driver, it cannot run them, or there is
                no libedgetpu
            InputError: a compiled file is damaged
        """
        if callable(self.driver):
            return StickTask(models, self.interpreter, self.driver)
        on_usb = self.driver_name != LIBEDGETPU and bool(sticks())
        if self.driver_name == OWN and not on_usb:
            raise DeviceError(
                "there is no Edge TPU on USB",
                hint="plug the stick in; `edgec doctor` says what the machine sees",
            )
        if on_usb and not callable(self.interpreter):
            reasons = (refusal(data) for model in models for data in model.compiled)
            why = next(filter(None, reasons), "")
            if not why:
                return StickTask(models, own_interpreter, OwnStick().open, OWN)
            if self.driver_name == OWN or not _has_library():
                raise DeviceError(
                    f"edgec's driver of the stick cannot run the compiled file: {why}",
                    at=models[0].segments[0].name,
                    hint="install libedgetpu, which can; `edgec doctor` says from where"
                    if self.driver_name != OWN
                    else 'use driver="libedgetpu", which can',
                )
        # Without the library it is not necessary to start a process.
        edgetpu_library()
        return StickTask(models, self.interpreter, load_edgetpu, LIBEDGETPU)


def _has_library() -> bool:
    try:
        edgetpu_library()
    except DeviceError:
        return False
    return True


def open_stick(
    bundles: Sequence[Bundle], options: EdgeTpuOptions, warn: Callable[[str], None]
) -> Tuple[Optional[StickOfModel], ...]:
    """Return the Edge TPU for each bundle; None for one whose segments all run on C.

    Args:
        bundles: the bundles
        options: how segments for the Edge TPU run
        warn: is called, once, with the reason why an existing Edge TPU is not used

    Raises:
        DeviceError: tpu is "delegate", and the Edge TPU cannot be used
        InputError: tpu is "delegate", and a segment was not compiled for it
    """
    nothing: Tuple[Optional[StickOfModel], ...] = (None,) * len(bundles)
    if options.tpu in ("interpreter", "c") or options.driver_name == NO_DRIVER:
        return nothing
    insists = options.tpu == "delegate"
    models = [_model(bundle, insists) for bundle in bundles]
    present = tuple(model for model in models if model is not None)
    if not present:
        return nothing
    try:
        task = options.task(present)
    except (DeviceError, InputError) as e:
        _leave_alone(e, insists, warn if sticks() else lambda text: None)
        return nothing

    device = _device(task)
    try:
        # A cascade's networks have one process already.
        if device is not None and len(bundles) == 1:
            shared = shared_stick(task, device)
            return (shared.add(present[0], options.timeout, warn),)
        opened = iter(Stick(task, options.timeout, warn).models)
    except DeviceError as e:
        _leave_alone(e, insists, warn)
        return nothing
    return tuple(None if model is None else next(opened) for model in models)


def _leave_alone(error: EdgecError, insists: bool, warn: Callable[[str], None]) -> None:
    """Warn that an Edge TPU is not used, or raise the error if it is insisted on."""
    if insists:
        raise error
    warn(f"{error.what}; it runs on the CPU; hint: {error.hint}")


def _device(task: StickTask) -> Optional[str]:
    """Return the device of libedgetpu ("" for any); None for a user's own function."""
    if task.driver == OWN:
        return OWN
    if callable(task.interpreter):
        return None
    if task.driver == LIBEDGETPU:
        return ""
    owner = getattr(task.delegate, "__self__", None)
    return owner.device if isinstance(owner, EdgeTpuDelegate) else None


def _model(bundle: Bundle, insists: bool) -> Optional[StickModel]:
    """Return the model for the Edge TPU's process; None if no segment is compiled for it.

    Args:
        bundle: the bundle
        insists: whether a segment that was not compiled is an error
    """
    segments = _compiled_segments(bundle, insists)
    if not segments:
        return None
    # The process gets bytes, since it does not read the bundle itself.
    compiled: List[bytes] = []
    names: Set[str] = set()
    for s in segments:
        assert s.edgetpu is not None
        compiled.append(bundle.read(s.edgetpu))
        names.update(s.inputs, s.outputs)

    # The shared memory has only the tensors of these segments.
    tensors = {n: i for n, i in bundle.manifest.tensors.items() if n in names}
    return StickModel(segments, tensors, tuple(compiled))


def _compiled_segments(bundle: Bundle, insists: bool) -> Tuple[SegmentInfo, ...]:
    """Return the segments that were compiled for the Edge TPU."""
    segments: List[SegmentInfo] = []
    for s in bundle.manifest.segments:
        if s.place != "edgetpu":
            continue
        if s.edgetpu is not None:
            segments.append(s)
        elif insists:
            raise InputError(
                f'segment "{s.name}" was not compiled for the Edge TPU',
                hint="compile again where edgetpu_compiler is installed, or do not "
                "insist on the Edge TPU",
            )
    return tuple(segments)
