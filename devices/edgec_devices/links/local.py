"""local: - this machine, this process."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from edgec_runtime import Bundle, InputError, Session
from edgec_runtime.errors import did_you_mean
from edgec_runtime.inputs import Array
from edgec_runtime.session import TPU_MODES

from edgec_devices.device import BenchResult, Device, Series
from edgec_devices.stream import PipeStream, Stream, bootstrap

USAGE = "local:"


def open_device(rest: str) -> Device:
    """rest: empty, or how to run Edge TPU segments: "auto", "delegate", "interpreter", "c"."""
    tpu = rest or "auto"
    if tpu not in TPU_MODES:
        what = f'"local:{rest}" is no way to run{did_you_mean(rest, TPU_MODES)}'
        raise InputError(what, hint=f"use local: or local: and one of {', '.join(TPU_MODES)}")
    return Local(tpu)


class Local(Device):
    """Runs a bundle in this process."""

    def __init__(self, tpu: str = "auto") -> None:
        self.url = "local:" if tpu == "auto" else f"local:{tpu}"
        self._tpu = tpu

    def run(self, bundle: Bundle, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One inference."""
        with Session(bundle, tpu=self._tpu) as session:
            return session.run(inputs)

    def bench(self, bundle: Bundle, runs: int = 50, inputs: Mapping[str, Array] | None = None) -> BenchResult:
        """Measured."""
        if runs < 1:
            raise InputError(f"cannot time {runs} runs", hint="give runs of 1 or more")
        with Session(bundle, tpu=self._tpu) as session:
            profile = session.profile(inputs, runs=runs)
            backends = session.backends
        segments = tuple(
            Series(s.name, s.place, tuple(ns / 1e6 for ns in profile.segments[s.name]), f"measured, {backends[s.name]}")
            for s in bundle.manifest.segments
        )
        total = Series("total", "", tuple(ns / 1e6 for ns in profile.total), "measured")
        return BenchResult(self.url, bundle.manifest.name, runs, False, segments, total)


def open_stream(rest: str, ask: bool = False) -> Stream:
    """The device end as a process of this machine; its folder is ~/.edgec or EDGEC_ROOT.  rest, ask: not used."""
    return PipeStream("local:", [sys.executable, "-u", "-c", bootstrap()[0]])
