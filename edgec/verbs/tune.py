"""`tune`: searches the legal schedules of a bundle's calls on a device.

The best schedules go into a database, which later compiles read.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from edgec_devices.boards import ArchTarget, Board
from edgec_devices.decoding import from_json
from edgec_devices.device import device_for
from edgec_devices.options import path_of
from edgec_runtime import Bundle

from edgec.benching.build import read_graph
from edgec.benching.tuning import TunedCall, Tuning
from edgec.compiler.tuning_databases import default_path
from edgec.emit.calls_file import CALLS_FILE, AskedCall, CallsFile
from edgec.errors import DeviceError, InputError, ToolError
from edgec.executors import TIMES, each_done
from edgec.ir import KernelCall
from edgec.options.tune import TuneOptions
from edgec.report.files import check_place, write_whole
from edgec.schedule.cores import Core, cores_of
from edgec.schedule.database import Database, TunedSchedule
from edgec.schedule.records import call_of_record
from edgec.schedule.variant import legal, tuned
from edgec.steps import Progress
from edgec.verbs.trial import ScheduleTrial, TrialOutcome, is_model, try_out
from edgec.version import VERSION

MIN_SPEEDUP = 1.01
"""How many times as fast as the default a schedule must be to be taken: less is noise,
or not worth another choice.
"""


def _workers(options: TuneOptions) -> Workers:
    """Return the workers of a search.

    Raises InputError for those of a cluster on one device.
    """
    workers = Workers.of(None if options.workers is None else str(options.workers))
    if workers.address and not is_model(options.url):
        raise InputError(
            f"workers would measure on {options.url} all at once",
            at="--workers",
            hint="use --on emulated:<board>, or leave out --workers",
        )
    return workers


def _trial_executor(options: TuneOptions) -> AbstractContextManager[Executor]:
    """Return the executor of the trials; that of the options is not closed."""
    if options.executor:
        return nullcontext(options.executor)

    # Measurements on one device would disturb each other.
    threads = (os.cpu_count() or 1) if is_model(options.url) else 1
    return _workers(options).executor(threads, options.timeout)


@dataclass(frozen=True)
class _BundleCalls:
    """The calls of a bundle's code for one target.

    Attributes:
        board: the board of the bundle.
        target: the target.
        calls: the calls for each core, the preferred core first.
    """

    board: Board
    target: ArchTarget
    calls: Mapping[Core, Sequence[AskedCall]]


def tune(options: TuneOptions) -> Tuning:
    """Try the calls that are not in the database yet, and write it after each.

    Raises EdgecError.
    """
    _workers(options)
    path = path_of(options.output) or default_path()
    if options.output is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    check_place(path, "--output")
    database = Database.load(path) if path.is_file() else Database()
    # A device that is not there is an error now, not after minutes.
    device_for(options.url, options.timeout)

    options.say("read")
    with Bundle.open(options.bundle) as bundle:
        bundle.manifest.check_alone(
            str(bundle.path), hint="compile and tune its networks alone"
        )
        bundle_calls = _bundle_calls(bundle, options)
        by_core = {}
        for core, calls in bundle_calls.calls.items():
            by_core[core] = _largest(bundle, calls)[: options.ops]

    with _trial_executor(options) as executor:
        # A device has one of the cores: the code for another one never runs there.
        for core, calls in by_core.items():
            on_core = _CoreSearch(options, path, core, calls, database)
            if on_core.run(executor, bundle_calls, options.say):
                tuned_calls = tuple(on_core.tuned_calls)
                return Tuning(
                    path, options.url, is_model(options.url), core.name, tuned_calls
                )

    names = ", ".join(core.name for core in by_core)
    raise InputError(
        f"{options.url} is not one of {names}",
        at=str(options.bundle),
        hint="compile for the device's board, or tune on that board",
    )


class _CoreSearch:
    """The search for one core.

    Attributes:
        tuned_calls: the schedules so far, those of the database first.
    """

    def __init__(
        self,
        options: TuneOptions,
        path: Path,
        core: Core,
        calls: Sequence[AskedCall],
        database: Database,
    ) -> None:
        """Look the calls up in the database.

        path: the file of the database.
        """
        self._on = options.url
        self._timeout = options.timeout
        self._path = path
        # Without schedules of its own: every candidate is compared with the default.
        self._core = replace(core, tuned={})
        self._database = database
        self._calls = {c.signature: c for c in calls}
        self._untried: list[AskedCall] = []
        self.tuned_calls: list[TunedCall] = []
        # An interrupted search goes on where it ended.
        for signature, call in self._calls.items():
            entry = self._known(call)
            if entry is None:
                self._untried.append(call)
            else:
                self.tuned_calls.append(self._tuned_call(signature, entry, new=False))

    def _known(self, call: AskedCall) -> TunedSchedule | None:
        """Return the database's schedule of a call, if it is still valid.

        It must be of this device and this edgec, and legal.
        """
        entry = self._database.of(self._core.name).get(call.signature)
        if entry is None or (entry.device, entry.edgec) != (self._on, VERSION):
            return None

        core = replace(self._core, tuned={call.signature: entry})

        return entry if tuned(call_of_record(call.call), core) else None

    def run(
        self, executor: Executor, bundle_calls: _BundleCalls, say: Progress
    ) -> bool:
        """Try the other calls. Return whether the device has this core."""
        trials = [self._trial(call, bundle_calls) for call in self._untried]
        count = len(trials)
        say(f"try 1/{count}" if trials else "")
        # Closed at once where the device has another core: the other trials are void.
        with closing(each_done(executor, try_out, trials)) as done:
            for i, (trial, outcome) in enumerate(done, 2):
                if not outcome.ms:
                    return False
                self._keep(trial, outcome)
                say(f"try {min(i, count)}/{count}")
        say("")

        return True

    def _trial(self, call: AskedCall, bundle_calls: _BundleCalls) -> ScheduleTrial:
        return ScheduleTrial(
            signature=call.signature,
            call=call.call,
            core=self._core,
            board=bundle_calls.board.name,
            target=bundle_calls.target,
            url=self._on,
            timeout=self._timeout,
        )

    def _keep(self, trial: ScheduleTrial, outcome: TrialOutcome) -> None:
        """Put the best schedule of a trial into the database, and write it."""
        call = call_of_record(trial.call)
        candidates = legal(call, trial.core)
        # Chosen by some launches, and compared with the default by the others.
        best = min(range(len(candidates)), key=outcome.ms.__getitem__)
        ms = outcome.again
        if not ms[0] > MIN_SPEEDUP * ms[best]:
            best = 0

        variant, schedule = candidates[best]
        entry = TunedSchedule(
            variant=variant.name,
            schedule=dict(schedule),
            ms=ms[best],
            default_ms=ms[0],
            tried=len(ms),
            device=self._on,
            estimated=outcome.estimated,
            edgec=VERSION,
            what=_types_text(call),
        )
        self._database = self._database.with_entry(
            self._core.name, trial.signature, entry
        )
        # After each call: a search that ends early has not been in vain.
        write_whole(self._path, json.dumps(self._database.to_json(), indent=1) + "\n")
        self.tuned_calls.append(self._tuned_call(trial.signature, entry, new=True))

    def _tuned_call(
        self, signature: str, entry: TunedSchedule, *, new: bool
    ) -> TunedCall:
        """Return a row of the report. new: whether it was tried now."""
        return TunedCall(
            self._calls[signature].functions,
            entry.what,
            entry.variant,
            entry.schedule,
            entry.ms,
            entry.default_ms,
            entry.tried,
            new,
        )


def _bundle_calls(bundle: Bundle, options: TuneOptions) -> _BundleCalls:
    """Return the calls of the bundle's first target that fits the device.

    Raises InputError where there is nothing to choose.
    """
    at = str(bundle.path)
    board = Board.load(bundle.manifest.board)
    if CALLS_FILE not in bundle.manifest.files:
        raise InputError(
            "the bundle does not say what it computes",
            at=at,
            hint="compile the model again",
        )
    # The file comes from a bundle, which may come from anywhere.
    calls_file = from_json(
        bundle.read(CALLS_FILE), CallsFile, CALLS_FILE, at, "compile the model again"
    )
    target_name = _device_target(board, options, at)
    for target in board.targets:
        calls = calls_file.targets.get(target.name)
        if target_name not in ("", target.name) or not calls:
            continue
        # A damaged call would else be found after minutes.
        _check_calls(calls_file, at)
        by_core = {}
        for core in cores_of(board, target):
            if core.name in calls:
                by_core[core] = calls[core.name]
        return _BundleCalls(board, target, by_core)

    message = (
        "nothing that the bundle computes can be done in more than one way on "
        f"{target_name or board.name}"
    )
    raise InputError(
        message,
        at=at,
        hint="tune a bundle for 64-bit Arm or x86-64 with a part on the CPU",
    )


def _device_target(board: Board, options: TuneOptions, at: str) -> str:
    """Return the target that the device's URL names, "" where it names none.

    Raises InputError for a device of another board.

    board: the board of the bundle.
    at: the bundle, for messages.
    """
    kind, _, rest = options.url.partition(":")
    if kind == "local":
        device_board, target_name = "host", ""
    elif kind == "emulated":
        device_board, _, target_name = rest.partition("/")
    else:
        # The URLs of other devices do not name their board.
        return ""

    if device_board != board.name:
        hint = (
            f"compile it with --target {device_board}, "
            f"or tune it on emulated:{board.name}"
        )
        raise InputError(
            f"the bundle is for {board.name}, {options.url} is not", at=at, hint=hint
        )
    return target_name


def _check_calls(calls_file: CallsFile, at: str) -> None:
    """Raise InputError for calls that cannot be read. at: the bundle."""
    for call in _all_calls(calls_file):
        try:
            call_of_record(call.call)
        except (KeyError, TypeError, ValueError, IndexError) as e:
            message = f"{CALLS_FILE} is damaged: {call.signature}: {e!r}"
            raise InputError(message, at=at, hint="compile the model again") from e


def _all_calls(calls_file: CallsFile) -> Iterator[AskedCall]:
    """Yield the calls of all targets and cores."""
    for cores in calls_file.targets.values():
        for calls in cores.values():
            yield from calls


def _largest(bundle: Bundle, calls: Sequence[AskedCall]) -> list[AskedCall]:
    """Return the calls, those with the most multiply-accumulates first."""
    graph = read_graph(bundle)
    macs = {}
    for row in graph.ops:
        if row.call is not None:
            function = graph.segment(row.segment).functions[row.call]
            macs[f"{row.segment}.{function}"] = row.macs

    # One call can serve several functions of the code.
    def total(call: AskedCall) -> int:
        return sum(macs.get(function, 0) for function in call.functions)

    return sorted(calls, key=lambda call: -total(call))


def _types_text(call: KernelCall) -> str:
    """Return the types of a call's first input and its result, for people."""
    types = []
    for c in (call, *call.then):
        types += [p.value.type for p in c.pointers() if p.value.const is None]

    return f"{types[0]} -> {types[-1]}"


_DASK_URL = re.compile(r"dask://([^/\s]+:\d+)/?")


@dataclass(frozen=True)
class Workers:
    """The workers that a person asks for.

    Attributes:
        threads: the number of threads of this process; None: the usual number.
        address: host and port of a Dask scheduler; "": threads do it.
    """

    threads: int | None = None
    address: str = ""

    @classmethod
    def of(cls, given: str | None) -> Workers:
        """Return the workers of a number, or of "dask://host:port".

        Raises InputError for anything else.
        """
        text = (given or "").strip()
        address = _DASK_URL.fullmatch(text)
        if address is not None:
            return cls(address=address[1])
        if given is None:
            return cls()
        if text.isdecimal() and int(text) > 0:
            return cls(int(text))

        hint = "give how many threads, or for example dask://192.168.1.5:8786"
        raise InputError(f'"{given}" names no workers', at="--workers", hint=hint)

    @contextlib.contextmanager
    def executor(self, threads: int, timeout: float) -> Iterator[Executor]:
        """Yield the executor: the cluster, or a pool of threads.

        threads: the usual number of threads.
        timeout: seconds to wait for the cluster.

        Raises ToolError where Dask is not installed, DeviceError where no cluster
        answers.
        """
        if not self.address:
            pool = ThreadPoolExecutor(self.threads or threads)
            try:
                yield pool
            finally:
                # An error must not wait for trials that nobody needs any more.
                pool.shutdown(wait=False, cancel_futures=True)
            return

        try:
            from distributed import Client
        except ImportError as e:
            raise ToolError(
                "Dask is not installed",
                at="--workers",
                hint="pip install 'edgec[dask]'",
            ) from e
        try:
            client = Client(
                f"tcp://{self.address}", timeout=timeout, set_as_default=False
            )
        except (OSError, TimeoutError) as e:
            hint = "start it there: dask scheduler, and dask worker on each machine"
            raise DeviceError(
                f"no Dask scheduler answers at {self.address}: {e}",
                at="--workers",
                hint=hint,
            ) from e

        with client:
            # Trials are not pure: the same one may have another time.
            yield client.get_executor(pure=False, retries=TIMES)
