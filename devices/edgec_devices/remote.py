"""Runs and times bundles on a device behind a stream, with its slots left as they are."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from edgec_runtime import Bundle, DeviceError, InputError
from edgec_runtime.inputs import Array, check_inputs

from edgec_devices.device import BenchResult, Device, Series
from edgec_devices.flash import execute
from edgec_devices.protocol import Connection
from edgec_devices.pushing import has_runtime
from edgec_devices.stream import Stream
from edgec_devices.transfer import Recipe, send


class Remote(Device):
    """The bundle's program on the device.  open_stream: a new stream to it."""

    def __init__(self, open_stream: Callable[[], Stream]) -> None:
        self._open_stream = open_stream
        self.url = open_stream().url

    def run(self, bundle: Bundle, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference."""
        return self._execute(bundle, 1, inputs)[1]

    def bench(self, bundle: Bundle, runs: int = 50, inputs: Mapping[str, Array] | None = None) -> BenchResult:
        """Measured on the device, all segments as C.  inputs: default is the program's own noise."""
        if runs < 1:
            raise InputError(f"cannot time {runs} runs", hint="give runs of 1 or more")
        report = self._execute(bundle, runs, inputs)[0]
        try:
            segments = tuple(
                Series(s["name"], s["place"], tuple(ns / 1e6 for ns in s["ns"]), f"measured, {s.get('backend', 'c')}")
                for s in report["segments"]
            )
            total = Series("total", "", tuple(ns / 1e6 for ns in report["total"]), "measured")
        except (KeyError, TypeError) as e:
            raise DeviceError(f"the program's report is strange: {e!r}", at=self.url, hint="compile it again") from e
        return BenchResult(self.url, bundle.manifest.name, runs, False, segments, total)

    def _execute(
        self, bundle: Bundle, runs: int, inputs: Mapping[str, Array] | None
    ) -> tuple[dict[str, Any], dict[str, Array]]:
        infos = bundle.manifest.output_infos()
        files = []
        for array in check_inputs(bundle.manifest, inputs) if inputs is not None else ():
            file = io.BytesIO()
            np.save(file, np.ascontiguousarray(array).reshape(array.shape))
            files.append(file.getvalue())
        recipe = Recipe.of(bundle.path)
        with Connection(self._open_stream()) as connection:
            slot = send(connection, recipe, scratch=True).slot
            edgetpu = any(s.place == "edgetpu" for s in bundle.manifest.segments)
            session = edgetpu and has_runtime(connection, recipe.app)
            report, found = execute(connection, recipe.app, slot, runs, files, len(infos), session)
        outputs = {}
        for info, data in zip(infos, found, strict=True):
            try:
                array = np.load(io.BytesIO(data), allow_pickle=False)
            except (OSError, ValueError) as e:
                raise DeviceError(f'output "{info.name}" cannot be read: {e}', at=self.url, hint="try again") from e
            if array.dtype != info.numpy_dtype or array.shape != info.shape:
                what = f'output "{info.name}" is {array.dtype.str} {array.shape}, the manifest says {info}'
                raise DeviceError(what, at=self.url, hint="compile the model again")
            outputs[info.name] = array
        return report, outputs
