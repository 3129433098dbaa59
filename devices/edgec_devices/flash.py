"""flash, rollback and status on one device or on many side by side."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from edgec_runtime import DeviceError, EdgecError, InputError, Summary

from edgec_devices import answers
from edgec_devices.device import TIMEOUT_S
from edgec_devices.measurement import Latencies, program_report
from edgec_devices.protocol import Connection
from edgec_devices.pushing import push
from edgec_devices.requirement import Figure, Kind, Requirement, Vocabulary
from edgec_devices.stream import ByteStream, LinkLost, stream_for
from edgec_devices.transfer import Assembly, Sending, send
from edgec_devices.wheel import Wheel

ATTEMPTS = 3
SIDE_BY_SIDE = 16
CHECK_RUNS = 50
CHECK_S = 300.0
SERVICE_S = 300.0  # stopping a service may take systemd 90 s
METRICS = ("min", "p50", "p90", "p95", "p99", "max", "mean")
HEALTH = Vocabulary({metric: Kind("ms") for metric in METRICS}, "--health", "p95<=40ms")


@dataclass(frozen=True)
class FlashOutcome:
    """What came of it on one device.  error: None where all went well.  sent: bytes.
    seconds: of a flash, in all.
    """

    url: str
    what: str
    error: EdgecError | None = None
    sent: int = 0
    seconds: float = 0.0
    facts: dict[str, Any] | None = None

    @property
    def ok(self) -> bool:
        """All went well."""
        return self.error is None


def flash(
    bundle: Path,
    urls: Sequence[str],
    health: str | None = None,
    app: str | None = None,
    report: Callable[[str, Sending], None] = lambda url, sending: None,
    ask: bool = False,
    service: bool = False,
    wheels: Sequence[Wheel | str] | None = None,
    timeout: float = TIMEOUT_S,
    downgrade: bool = False,
) -> tuple[FlashOutcome, ...]:
    """Puts a bundle on devices and makes it the active one; an outcome each, in order.

    health: what latencies of the new program must keep on the device before it gets a
    slot, for example "p95<=40ms"; otherwise both slots stay as they are.  report:
    called as bytes arrive.  service: systemd runs the active slot from then on; a
    device that has none is left as it is.  wheels: the runtime goes there too, and
    these; a name is that of a project of the package index.  timeout: seconds for which
    nothing may move on the way.  downgrade: a signed bundle may be older than what a
    device had.  Raises BundleError or InputError for what is wrong before any device is
    touched; what a device refuses is in its outcome.
    """
    recipe = Assembly.of(bundle, app)
    budget = HEALTH.parse(health) if health is not None else None

    def one(url: str) -> FlashOutcome:
        begun = time.monotonic()
        for attempt in range(ATTEMPTS):
            report(url, Sending(step="connecting"))
            try:
                with Connection(stream_for(url, ask, timeout)) as connection:
                    done = flash_one(
                        connection,
                        recipe,
                        budget,
                        lambda sending: report(url, sending),
                        service,
                        wheels,
                        downgrade,
                    )
                return replace(done, seconds=time.monotonic() - begun)
            except LinkLost:
                if attempt + 1 == ATTEMPTS:
                    raise
                time.sleep(1.0)
        raise AssertionError("not reached")

    return each(urls, one)


def flash_one(
    connection: Connection,
    recipe: Assembly,
    budget: Requirement | None,
    progress: Callable[[Sending], None],
    service: bool = False,
    wheels: Sequence[Wheel | str] | None = None,
    downgrade: bool = False,
) -> FlashOutcome:
    """The same on one connection.  Raises what goes wrong, with the old slot active."""
    url = connection.stream.url
    if service:
        connection.ask("service", answers.Done, app=recipe.app, check=True)
    if wheels is not None:
        progress(Sending(step="sending the runtime"))
    pushed = "" if wheels is None else f", {push(connection, recipe.app, wheels)}"
    sent = send(connection, recipe, progress=progress, downgrade=downgrade)
    said = ""
    if budget:
        progress(replace(sent.sending, step="measuring"))
        try:
            ms = latency(connection, recipe.app, sent.slot).as_dict()[budget.figure]
            said = f", {budget.figure} {ms:.3f} ms"
            if not budget.check(Figure(ms, "ms")).holds:
                raise DeviceError(
                    f"the health check {budget.text} failed: "
                    f"{budget.figure} is {ms:.3f} ms; the earlier version stays",
                    at=url,
                    hint="edgec bench shows which segment takes the time",
                )
        except LinkLost:
            raise
        except EdgecError:
            if not sent.same:
                connection.ask("discard", answers.Done, app=recipe.app)
            raise
    what = f"was there already, slot {sent.slot}{pushed}{said}"
    if not sent.same:
        progress(replace(sent.sending, step="switching"))
        done, _ = connection.ask(
            "activate",
            answers.Switched,
            limit=SERVICE_S,
            app=recipe.app,
            allow_downgrade=downgrade,
        )
        what = f"flashed, slot {done.active}{pushed}{said}{_service_trouble(done)}"
    if service:
        what += _start(connection, recipe.app)
    return FlashOutcome(url, what, None, sent.sending.wire)


def _start(connection: Connection, app: str) -> str:
    """Has systemd run the active slot; what to say of it."""
    done, _ = connection.ask("service", answers.Serving, limit=SERVICE_S, app=app)
    if done.lingers:
        ends = ""
    else:
        ends = (
            "; it ends when its user logs out: sudo loginctl enable-linger $USER "
            "on "
            "the device"
        )
    return f", {Path(done.unit).name} runs{ends}"


def _service_trouble(done: answers.Switched) -> str:
    """Of the answer to a switch: the application's service was to be restarted."""
    if done.service:
        return f"; its service still runs the other version: {done.service}"
    return ""


def latency(
    connection: Connection, app: str, slot: str, runs: int = CHECK_RUNS
) -> Summary:
    """Of the program of a slot, in ms, on the device.

    Raises DeviceError when it fails.
    """
    report = execute(connection, app, slot, ("--runs", str(runs))).report
    try:
        found = msgspec.convert(report, Latencies)
        return Summary.of([ns / 1e6 for ns in found.total[found.warmup :]])
    except ValueError as e:
        raise DeviceError(
            f"the program's report has no latencies: {e}", at=connection.stream.url
        ) from e


@dataclass(frozen=True)
class DeviceRun:
    """report: the program's --json.  outputs: .npy files.  vitals: as device_end.vitals
    has them, if asked for.
    """

    report: dict[str, Any]
    outputs: tuple[bytes, ...]
    vitals: dict[str, Any] | None


def execute(
    connection: Connection,
    app: str,
    slot: str,
    options: Sequence[str],
    inputs: Sequence[bytes] = (),
    outputs: int = 0,
    session: bool = False,
    watch: bool = False,
) -> DeviceRun:
    """Runs a slot's program (csrc/main.c).  options: how it is timed.  inputs: .npy
    files.  outputs: how many.

    session: with the runtime that the device has, which uses the Edge TPU, instead.
    watch: read the vitals meanwhile.
    """
    ran, blob = connection.ask(
        "run",
        answers.RunAnswer,
        b"".join(inputs),
        CHECK_S,
        beats=True,
        app=app,
        slot=slot,
        options=list(options),
        inputs=[len(i) for i in inputs],
        outputs=outputs,
        session=session,
        watch=watch,
        launched=True,
    )
    report = program_report(
        ran.status, ran.report, ran.error_output, connection.stream.url
    )
    if (
        sum(ran.outputs) != len(blob)
        or min(ran.outputs, default=0) < 0
        or len(ran.outputs) != outputs
    ):
        what = f"the device sent other outputs than it says: {len(blob)} bytes"
        raise DeviceError(what, at=connection.stream.url, hint="try again")
    files = []
    for size in ran.outputs:
        files.append(blob[:size])
        blob = blob[size:]
    return DeviceRun(report, tuple(files), ran.vitals)


def rollback(
    urls: Sequence[str],
    app: str | None = None,
    ask: bool = False,
    timeout: float = TIMEOUT_S,
) -> tuple[FlashOutcome, ...]:
    """Goes back to the earlier version.  app: needed where a device has several."""

    def one(url: str) -> FlashOutcome:
        with Connection(stream_for(url, ask, timeout)) as connection:
            name = app or _only_app(connection)
            done, _ = connection.ask(
                "rollback", answers.Switched, limit=SERVICE_S, app=name
            )
            return FlashOutcome(
                url, f"{name} is back on slot {done.active}{_service_trouble(done)}"
            )

    return each(urls, one)


def status(
    urls: Sequence[str], ask: bool = False, timeout: float = TIMEOUT_S
) -> tuple[FlashOutcome, ...]:
    """What each device is and has: facts are those of the requests info and status."""

    def one(url: str) -> FlashOutcome:
        with Connection(stream_for(url, ask, timeout)) as connection:
            info, _ = connection.ask("info", answers.Info)
            there, _ = connection.ask("status", answers.StatusAnswer, limit=300.0)
            facts = {**msgspec.to_builtins(info), **msgspec.to_builtins(there)}
            return FlashOutcome(
                url, f"{info.board or info.target}, {info.os}", facts=facts
            )

    return each(urls, one)


def _only_app(connection: Connection) -> str:
    apps = [
        a.app
        for a in connection.ask("status", answers.StatusAnswer, limit=300.0)[0].apps
    ]
    if len(apps) != 1:
        what = (
            f"the device has {len(apps)} "
            f"applications{': ' if apps else ''}{', '.join(apps)}"
        )
        hint = "say which with --app" if apps else "edgec flash puts one there"
        raise InputError(what, at=connection.stream.url, hint=hint)
    return apps[0]


def each(
    urls: Sequence[str], one: Callable[[str], FlashOutcome]
) -> tuple[FlashOutcome, ...]:
    """Side by side; an error of one device is its outcome, so the others go on."""
    twice = {u for u in urls if urls.count(u) > 1}
    if twice or not urls:
        if twice:
            what = f"{', '.join(sorted(twice))} is given twice"
        else:
            what = "no device is given"
        raise InputError(what, hint="name each device once")
    # so that a mistyped URL is found before the first flash
    streams: list[ByteStream] = [stream_for(url) for url in urls]
    del streams

    def safe(url: str) -> FlashOutcome:
        try:
            return one(url)
        except EdgecError as e:
            return FlashOutcome(url, e.what, e)

    with ThreadPoolExecutor(min(SIDE_BY_SIDE, len(urls))) as pool:
        return tuple(pool.map(safe, urls))
