"""Runs and times bundles on a device behind a stream, without changing its slots."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from edgec_runtime import Bundle, DeviceError
from edgec_runtime.bundle.arrays import read_array
from edgec_runtime.device_end.requests import INFO, Empty, RunRequest
from edgec_runtime.model.inputs import Array, check_inputs

from edgec_devices.device import Device, Infer, Progress
from edgec_devices.flash import execute
from edgec_devices.measurement import (
    Identity,
    Measurement,
    MeasuringPlan,
    measured,
    on_threads,
    streamed,
)
from edgec_devices.protocol import Connection
from edgec_devices.stream import ByteStream
from edgec_devices.transfer import Assembly, send
from edgec_devices.wheel_transfer import has_runtime

IDENTITY = ("board", "cpu", "os", "kernel", "target", "emulated")


class Remote(Device):
    """A device that runs the bundle's program; `open_stream` makes a stream to it."""

    def __init__(self, open_stream: Callable[[], ByteStream]) -> None:
        self._open_stream = open_stream
        self.url = open_stream().url

    def _connect(self) -> Connection:
        """Start a new conversation with the device."""
        # A stream for each: a link that was lost cannot be used again.
        stream = self._open_stream()
        stream.timeout = self.timeout
        return Connection(stream)

    def measure(
        self, bundle: Bundle, plan: MeasuringPlan, say: Progress = lambda text: None
    ) -> Measurement:
        """Measure on the device.

        Segments for the Edge TPU run on it, by the runtime if the device has it; a
        program alone uses a stick on USB, and otherwise their C.
        """
        recipe = Assembly.of(bundle.path)
        with self._connect() as connection:
            say("sending what the device lacks")
            # As scratch: a measurement must not replace the application that runs.
            slot = send(connection, recipe, scratch=True).slot
            edgetpu = any(s.place == "edgetpu" for s in bundle.manifest.segments)
            # The program has no driver for PCIe, and no stream.
            session = edgetpu and has_runtime(connection, recipe.app)
            info, _ = connection.ask(INFO, Empty())

            def launch(
                by_session: bool, options: tuple[str, ...]
            ) -> tuple[dict[str, Any], Any]:
                run = RunRequest(
                    recipe.app, slot, list(options), session=by_session, watch=True
                )
                ran = execute(connection, run)
                return ran.report, ran.vitals

            launches = measured(plan, bundle, self.url, session, launch, say)
            if plan.frames and not (session or has_runtime(connection, recipe.app)):
                hint = "edgec flash --with-runtime, then bench it again"
                raise DeviceError(
                    "only the runtime streams, and the device has none",
                    at=self.url,
                    hint=hint,
                )
            stream = streamed(plan, bundle, self.url, launch, say)
        about = Identity(self.url, **{name: getattr(info, name) for name in IDENTITY})
        return Measurement(
            about,
            "session" if session else "program",
            launches[0].backends,
            launches,
            stream=stream,
        )

    def run(
        self, bundle: Bundle, inputs: Mapping[str, Array], threads: int = 1
    ) -> dict[str, Array]:
        """Run one inference on the device, see Device.run."""
        bundle.manifest.check_threads(threads, str(bundle.path))
        # Inputs are checked here, where the message can name them.
        checked = check_inputs(bundle.manifest, inputs)
        with self.inferences(bundle, threads) as infer:
            return infer(checked)

    @contextmanager
    def inferences(self, bundle: Bundle, threads: int = 1) -> Iterator[Infer]:
        """Give a function that runs inferences on one connection.

        Logging in to a serial console takes seconds, which many inferences share.
        """
        bundle.manifest.check_threads(threads, str(bundle.path))
        recipe = Assembly.of(bundle.path)
        with self._connect() as connection:
            # As scratch: the application that runs there stays as it is.
            slot = send(connection, recipe, scratch=True).slot
            edgetpu = any(s.place == "edgetpu" for s in bundle.manifest.segments)
            session = edgetpu and has_runtime(connection, recipe.app)
            options = ("--runs", "1", *on_threads(threads))
            count = len(bundle.manifest.outputs)

            def infer(inputs: Mapping[str, Array]) -> dict[str, Array]:
                """Run one inference."""
                files = _input_files(bundle, inputs)
                run = RunRequest(
                    recipe.app, slot, list(options), outputs=count, session=session
                )
                ran = execute(connection, run, files)
                return self._outputs(bundle, ran.outputs)

            yield infer

    def _outputs(self, bundle: Bundle, files: Sequence[bytes]) -> dict[str, Array]:
        """Return the outputs of files that the device sent.

        Raises DeviceError for files that are no outputs of the bundle.
        """
        outputs = {}
        for info, data in zip(bundle.manifest.output_infos(), files, strict=True):
            try:
                array = read_array(io.BytesIO(data))
            except ValueError as e:
                raise DeviceError(
                    f'output "{info.name}" cannot be read: {e}',
                    at=self.url,
                    hint="try again",
                ) from e
            # Code of another compile has other outputs.
            if array.dtype != info.numpy_dtype or array.shape != info.shape:
                message = (
                    f'output "{info.name}" is {array.dtype.str} {array.shape}, '
                    f"the manifest says {info}"
                )
                raise DeviceError(message, at=self.url, hint="compile the model again")
            outputs[info.name] = array
        return outputs


def _input_files(bundle: Bundle, inputs: Mapping[str, Array]) -> list[bytes]:
    """Return the inputs as the content of .npy files, in the manifest's order."""
    files = []
    for array in check_inputs(bundle.manifest, inputs).values():
        file = io.BytesIO()
        np.save(file, np.ascontiguousarray(array).reshape(array.shape))
        files.append(file.getvalue())
    return files
