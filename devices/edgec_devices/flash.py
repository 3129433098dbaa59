"""Flashes devices, rolls them back and reads their status, many in parallel."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from edgec_runtime import Bundle, DeviceError, EdgecError, InputError, Summary
from edgec_runtime.device_end.requests import (
    ACTIVATE,
    DISCARD,
    INFO,
    ROLLBACK,
    RUN,
    RUN_S,
    SERVICE,
    STATUS,
    AppRequest,
    Empty,
    InstallRequest,
    RunRequest,
    ServiceRequest,
    SwitchAnswer,
    encode,
)
from edgec_runtime.serve.command_line import settings_of
from edgec_runtime.serve.detector import check_detector

from edgec_devices import device_names
from edgec_devices.cores import core_facts
from edgec_devices.device import TIMEOUT_S
from edgec_devices.measurement import Latencies, program_report
from edgec_devices.options import FlashOptions
from edgec_devices.protocol import Connection
from edgec_devices.requirement import Figure, Kind, Requirement, Vocabulary
from edgec_devices.stream import ByteStream, LinkLost, stream_for
from edgec_devices.transfer import (
    COMPARING,
    SENDING,
    WRITING,
    Assembly,
    Sending,
    send,
)
from edgec_devices.wheel import Wheel, wheels_or_names
from edgec_devices.wheel_transfer import push

ATTEMPTS = 3
"""Attempts of a flash whose link is lost; each goes on from the last good byte."""
MAX_PARALLEL = 16
"""Devices that are flashed at the same time."""
CHECK_RUNS = 50
"""Inferences of a health check."""
SERVICE_S = 300.0
"""Limit of a switch, s: stopping a service may take systemd 90 s."""
STATUS_S = 300.0
"""Limit of a status, s."""
CONNECTING = "connecting"
SENDING_RUNTIME = "sending the runtime"
SWITCHING = "switching"
LOOPBACK = "127.0.0.1:8100"
"""Where a server answers DeepStack's HTTP if nothing else is asked for."""
USUAL = FlashOptions()
"""The options of a flash where none is given."""
METRICS = ("min", "p50", "p90", "p95", "p99", "max", "mean")
HEALTH = Vocabulary({metric: Kind("ms") for metric in METRICS}, "--health", "p95<=40ms")


@dataclass(frozen=True)
class FlashOutcome:
    """The outcome on one device.

    Attributes:
        url: URL of the device
        what: the outcome in words
        error: the error, or None
        sent: bytes on the line
        seconds: duration of a flash, s
        facts: answers of the device to a status
    """

    url: str
    what: str
    error: EdgecError | None = None
    sent: int = 0
    seconds: float = 0.0
    facts: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """Return whether there was no error."""
        return self.error is None


@dataclass(frozen=True)
class FlashJob:
    """A flash of which all that this machine can check is right.

    Attributes:
        recipe: the bundle
        budget: the requirement on the latency, if there is one
        wheels: what is put beside the bundle; None: not even the runtime
        serve: the options of the server that is the service; None for the bundle's own
            program
        options: the options that it was made of
    """

    recipe: Assembly
    budget: Requirement | None = None
    wheels: Sequence[Wheel | str] | None = None
    serve: Sequence[str] | None = None
    options: FlashOptions = USUAL

    @classmethod
    def of(cls, bundle: Path, options: FlashOptions) -> FlashJob:
        """Return the flash of a bundle.

        Raises BundleError for a damaged bundle and InputError for an impossible option.
        """
        recipe = Assembly.of(bundle, options.app)
        health = options.health
        budget = HEALTH.parse(health) if health is not None else None
        serve = served(options.service)
        if serve is not None:
            with Bundle.open(bundle) as opened:
                check_detector(opened)
        # A wheel beside the bundle is of no use without the runtime that imports it.
        has_runtime = options.with_runtime or bool(options.wheels) or serve is not None
        wheels = wheels_or_names(options.wheels) if has_runtime else None
        return cls(recipe, budget, wheels, serve, options)

    @property
    def steps(self) -> Sequence[str]:
        """The steps of a flash of what the device does not have yet, in order."""
        steps = [CONNECTING, COMPARING, SENDING, WRITING, SWITCHING]
        if self.wheels is not None:
            steps.insert(steps.index(COMPARING), SENDING_RUNTIME)
        if self.budget is not None:
            steps.insert(steps.index(SWITCHING), _measuring(self.budget))
        return steps


def served(service: bool | str) -> Sequence[str] | None:
    """Return the options of the server that a service is; None for the bundle's program.

    service: True or "program", or a command line: "serve --zmq tcp://0.0.0.0:5555".
        Raises InputError for another one.
    """
    if isinstance(service, bool) or service == "program":
        return None
    try:
        verb, *words = shlex.split(service) or [""]
    except ValueError as e:
        raise InputError(f"--service {service}: {e}", hint="close the quotes") from e
    if verb != "serve":
        raise InputError(
            f'"{service}" is not a service',
            at="--service",
            hint="give --service alone for the bundle's program, or --service serve",
        )
    words = words or ["--deepstack", LOOPBACK]
    settings_of(words)
    return words


def flash(
    bundle: Path,
    urls: Sequence[str],
    options: FlashOptions = USUAL,
    report: Callable[[str, Sending], None] = lambda url, sending: None,
) -> tuple[FlashOutcome, ...]:
    """Put a bundle on devices as the active one; returns an outcome for each, in order.

    Raises BundleError or InputError for errors before any device is touched; errors of
    a device are in its outcome.

    report: called with the progress of each device
    """
    job = FlashJob.of(bundle, options)
    steps = job.steps

    def flash_device(url: str) -> FlashOutcome:
        start = time.monotonic()
        step = CONNECTING
        link_error: LinkLost | None = None

        def say(sending: Sending) -> None:
            turn = steps.index(sending.step) + 1
            report(url, replace(sending, turn=turn, steps=len(steps)))

        def progress(sending: Sending) -> None:
            nonlocal step
            step = sending.step
            say(sending)

        for attempt in range(ATTEMPTS):
            # Another attempt goes on from the last good byte.
            if attempt:
                time.sleep(1.0)
            # `step` keeps where the last attempt was.
            say(Sending(step=CONNECTING))
            connected = False
            try:
                stream = stream_for(url, options.ask, options.timeout)
                with Connection(stream) as connection:
                    connected = True
                    outcome = flash_one(connection, job, progress)
                return replace(outcome, seconds=time.monotonic() - start)
            except LinkLost as e:
                # How a link was lost says more than why it does not come back.
                if connected or link_error is None:
                    link_error = e
            except EdgecError:
                if connected or link_error is None:
                    raise
                break
        assert link_error is not None
        # Nothing was begun, and the error of the link has its own remedy.
        if step == CONNECTING and device_names.power_on_command(url) is None:
            raise link_error
        raise _lost(url, step, link_error) from link_error

    return each(urls, flash_device)


def _measuring(budget: Requirement) -> str:
    """Return the step of a health check."""
    count = f"{budget.figure} of {CHECK_RUNS} inferences"
    return f"measuring {count}, up to {RUN_S:.0f} s"


def _lost(url: str, step: str, error: LinkLost) -> LinkLost:
    """Return the error of a flash whose link was lost during a step, and stays so."""
    if step == SWITCHING:
        state = "the device has the earlier version or the new one whole"
    else:
        state = "the earlier version stays"
    again = device_names.power_on_command(url) or "see that the device is on"
    return LinkLost(
        f"the link was lost while {step}: {error.what}; {state}",
        at=url,
        hint=f"{again}, then flash again: only what it lacks is sent",
    )


def flash_one(
    connection: Connection, job: FlashJob, progress: Callable[[Sending], None]
) -> FlashOutcome:
    """Flash over one connection, see `flash`; after an error the old slot is active."""
    url = connection.stream.url
    app = job.recipe.app
    downgrade = job.options.allow_downgrade
    _check_cpu(connection, job.recipe)
    # A device without systemd is found out before megabytes are sent.
    if job.options.service:
        connection.ask(SERVICE, ServiceRequest(app, check=True))
    pushed = ""
    if job.wheels is not None:
        progress(Sending(step=SENDING_RUNTIME))
        pushed = f", {push(connection, app, job.wheels)}"
    # Its libraries may be among these wheels.
    if job.serve is not None:
        connection.ask(SERVICE, _service(job, app, check=True), limit=SERVICE_S)
    sent = send(connection, job.recipe, progress=progress, downgrade=downgrade)
    latency_text = ""
    budget = job.budget
    if budget:
        progress(replace(sent.sending, step=_measuring(budget)))
        try:
            ms = latency(connection, app, sent.slot).as_dict()[budget.figure]
            latency_text = f", {budget.figure} {ms:.3f} ms"
            # The new program is beside the slots until it has passed.
            if not budget.check(Figure(ms, "ms")).holds:
                raise DeviceError(
                    f"the health check {budget.text} failed: "
                    f"{budget.figure} is {ms:.3f} ms; the earlier version stays",
                    at=url,
                    hint="edgec bench shows which segment takes the time",
                )
        except LinkLost:
            # The next attempt finds the bundle on the device and only measures again.
            raise
        except EdgecError:
            if not sent.same:
                connection.ask(DISCARD, AppRequest(app))
            raise
    message = f"was there already, slot {sent.slot}{pushed}{latency_text}"
    # The active slot has this bundle already: there is nothing to switch.
    if not sent.same:
        progress(replace(sent.sending, step=SWITCHING))
        answer, _ = connection.ask(
            ACTIVATE, InstallRequest(app, downgrade), limit=SERVICE_S
        )
        message = f"flashed, slot {answer.active}{pushed}{latency_text}{_service_trouble(answer)}"
    if job.options.service:
        message += _start(connection, job, app)
    return FlashOutcome(url, message, None, sent.sending.wire)


def _check_cpu(connection: Connection, recipe: Assembly) -> None:
    """Raise DeviceError for a bundle with instructions that the device's CPU lacks."""
    info, _ = connection.ask(INFO, Empty())
    # "Cortex-A72" is the file cortex_a72; of other CPUs nothing is known.
    if not re.fullmatch(r"Cortex-A\d+", info.cpu):
        return
    cpu = core_facts(info.cpu.lower().replace("-", "_"))
    board = recipe.board
    needed = core_facts(board.core) if board and board.core else None
    lacking: list[str] = []
    if cpu is not None and needed is not None:
        lacking = [one for one in needed.isa if one not in cpu.isa]
    if board and lacking:
        raise DeviceError(
            f"the bundle is for {board.name}, whose code has instructions "
            f"({', '.join(lacking)}) that the {info.cpu} of this device lacks",
            at=connection.stream.url,
            hint=f"compile it for {info.board or 'the device'}: edgec compile --target",
        )


def _service(job: FlashJob, app: str, check: bool) -> ServiceRequest:
    serve = None if job.serve is None else [*job.serve]
    return ServiceRequest(app, check, serve)


def _start(connection: Connection, job: FlashJob, app: str) -> str:
    """Make systemd run the active slot; returns a text for the outcome."""
    request = _service(job, app, check=False)
    answer, _ = connection.ask(SERVICE, request, limit=SERVICE_S)
    ends = ""
    # systemd ends the services of a user without lingering at the last logout.
    if not answer.lingers:
        ends = (
            "; it ends when its user logs out: sudo loginctl enable-linger $USER "
            "on "
            "the device"
        )
    return f", {Path(answer.unit).name} runs{ends}"


def _service_trouble(answer: SwitchAnswer) -> str:
    """Return a remark if the application's service was not restarted, or ""."""
    if answer.service:
        return f"; its service still runs the other version: {answer.service}"
    return ""


def latency(
    connection: Connection, app: str, slot: str, runs: int = CHECK_RUNS
) -> Summary:
    """Measure the latency of a slot's program on the device, ms.

    Raises DeviceError if it fails.
    """
    report = execute(connection, RunRequest(app, slot, ["--runs", str(runs)])).report
    try:
        latencies = msgspec.convert(report, Latencies)
        steady = latencies.total[latencies.warmup :]
        return Summary.of([ns / 1e6 for ns in steady])
    except ValueError as e:
        raise DeviceError(
            f"the program's report has no latencies: {e}",
            at=connection.stream.url,
            hint="compile the bundle again with this edgec",
        ) from e


@dataclass(frozen=True)
class DeviceRun:
    """The result of a program on a device.

    Attributes:
        report: the program's --json
        outputs: the outputs as .npy files
        vitals: vitals of device_end.vitals, if they were requested
    """

    report: dict[str, Any]
    outputs: tuple[bytes, ...]
    vitals: dict[str, Any] | None


def execute(
    connection: Connection, run: RunRequest, inputs: Sequence[bytes] = ()
) -> DeviceRun:
    """Run the program of a slot (csrc/main.c) on a device.

    inputs: the inputs as .npy files
    """
    limit = max(RUN_S, connection.stream.timeout)
    sizes = [len(data) for data in inputs]
    run = run._replace(inputs=sizes, launched=True, limit=limit)
    ran, blob = connection.ask(RUN, run, b"".join(inputs), run.limit, beats=True)
    report = program_report(
        ran.status, ran.report, ran.error_output, connection.stream.url
    )
    # The sizes come from the device: they must add up before bytes are cut by them.
    sizes = ran.outputs
    if (
        sum(sizes) != len(blob)
        or min(sizes, default=0) < 0
        or len(sizes) != run.outputs
    ):
        message = f"the device sent {len(blob)} bytes of outputs, and announced another number"
        raise DeviceError(message, at=connection.stream.url, hint="try again")
    files = []
    for size in sizes:
        files.append(blob[:size])
        blob = blob[size:]
    return DeviceRun(report, tuple(files), ran.vitals)


def rollback(
    urls: Sequence[str],
    app: str | None = None,
    ask: bool = False,
    timeout: float = TIMEOUT_S,
) -> tuple[FlashOutcome, ...]:
    """Go back to the earlier version of an application.

    `app` is needed for a device with several applications.
    """

    def roll_back(url: str) -> FlashOutcome:
        with Connection(stream_for(url, ask, timeout)) as connection:
            # A guess among several applications could switch the wrong one.
            name = app or _only_app(connection)
            answer, _ = connection.ask(ROLLBACK, AppRequest(name), limit=SERVICE_S)
            message = (
                f"{name} is back on slot {answer.active}{_service_trouble(answer)}"
            )
            return FlashOutcome(url, message)

    return each(urls, roll_back)


def status(
    urls: Sequence[str], ask: bool = False, timeout: float = TIMEOUT_S
) -> tuple[FlashOutcome, ...]:
    """Ask each device for its facts, by the requests info and status."""

    def read_status(url: str) -> FlashOutcome:
        with Connection(stream_for(url, ask, timeout)) as connection:
            info, _ = connection.ask(INFO, Empty())
            apps, _ = connection.ask(STATUS, Empty(), limit=STATUS_S)
            facts = {**encode(info), **encode(apps)}
            message = f"{info.board or info.target}, {info.os}"
            return FlashOutcome(url, message, facts=facts)

    return each(urls, read_status)


def _only_app(connection: Connection) -> str:
    """Return the application of a device; raises InputError unless it has just one."""
    status, _ = connection.ask(STATUS, Empty(), limit=STATUS_S)
    apps = [facts.app for facts in status.apps]
    if len(apps) != 1:
        names = f": {', '.join(apps)}" if apps else ""
        message = f"the device has {len(apps)} applications{names}"
        hint = "say which with --app" if apps else "edgec flash puts one there"
        raise InputError(message, at=connection.stream.url, hint=hint)
    return apps[0]


def each(
    urls: Sequence[str], one: Callable[[str], FlashOutcome]
) -> tuple[FlashOutcome, ...]:
    """Call `one` for all devices in parallel.

    An error of one device is its outcome, so that the others go on.
    """
    # Two threads on one device would write to the same slot.
    twice = {url for url in urls if urls.count(url) > 1}
    if twice:
        message = f"{', '.join(sorted(twice))} is given twice"
        raise InputError(message, hint="name each device once")
    if not urls:
        raise InputError("no device is given", hint="name each device once")
    # A mistyped URL is an error before the first flash.
    streams: list[ByteStream] = [stream_for(url) for url in urls]
    del streams

    def safe(url: str) -> FlashOutcome:
        try:
            return one(url)
        except EdgecError as e:
            return FlashOutcome(url, e.what, e)

    with ThreadPoolExecutor(min(MAX_PARALLEL, len(urls))) as pool:
        return tuple(pool.map(safe, urls))
