"""`tune`: search the legal schedules of a bundle's calls on a device, and keep the
best.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from edgec_devices.boards import ArchTarget, Board
from edgec_devices.decoding import from_json
from edgec_devices.device import TIMEOUT_S, device_for
from edgec_runtime import Bundle

from edgec.benching.build import read_graph
from edgec.benching.tuning import TunedCall, Tuning
from edgec.compiler.tuned import default_path
from edgec.emit.calls_file import CALLS_FILE, AskedCall, CallsFile
from edgec.errors import InputError
from edgec.executors import each_done
from edgec.ir import KernelCall
from edgec.report.files import check_place, write_whole
from edgec.schedule.cores import Core, cores_of
from edgec.schedule.database import Database, TunedSchedule
from edgec.schedule.records import again
from edgec.schedule.variant import legal, tuned
from edgec.steps import Progress
from edgec.verbs.trial import ScheduleTrial, TrialOutcome, is_model, try_out
from edgec.verbs.workers import Workers
from edgec.version import VERSION

BETTER = 1.01
"""How many times as fast as the default a schedule must be to be taken: less is noise,
or not worth another choice.
"""


@dataclass(frozen=True)
class Search:
    """What `edgec tune` was asked for. on: a URL. workers: a number of threads, or the
    URL of a cluster; None: as many threads as the processor has cores where times are
    estimates, else one. ops: at most so many calls, the largest first. output: the
    database. executor: runs the trials instead.
    """

    bundle: Path
    on: str = "local:"
    workers: str | None = None
    ops: int | None = None
    output: Path | None = None
    timeout: float = TIMEOUT_S
    executor: Executor | None = None

    def __post_init__(self) -> None:
        if self.ops is not None and self.ops < 1:
            raise InputError(
                f"{self.ops} ops are none", at="--ops", hint="give 1 or more"
            )
        if Workers.of(self.workers).address and not is_model(self.on):
            what = f"workers would measure on {self.on} all at once"
            raise InputError(
                what,
                at="--workers",
                hint="use --on emulated:<board>, or leave out --workers",
            )


def tune(search: Search, say: Progress = lambda text: None) -> Tuning:
    """Try what is not yet in the database, and write it after each call.

    Raises EdgecError.
    """
    path = search.output or default_path()
    if search.output is None:
        path.parent.mkdir(parents=True, exist_ok=True)
    check_place(path, "--output")
    database = Database.load(path) if path.is_file() else Database()
    device_for(search.on, search.timeout)  # an error now, not after minutes
    say("read")
    with Bundle.open(search.bundle) as bundle:
        board, target, cores = _cores(bundle, search)
        asked = {
            core: _largest(bundle, calls)[: search.ops] for core, calls in cores.items()
        }
    threads = (os.cpu_count() or 1) if is_model(search.on) else 1
    asked_for = Workers.of(search.workers)
    own: AbstractContextManager[Executor]
    if search.executor:
        own = nullcontext(search.executor)
    else:
        own = asked_for.executor(threads, search.timeout)
    with own as executor:
        # the first that the device is; it never runs what is for another
        for core, calls in asked.items():
            one = _OnCore(search, path, core, calls, database)
            if one.search(executor, board, target, say):
                return Tuning(
                    path, search.on, is_model(search.on), core.name, tuple(one.found)
                )
    what = f"{search.on} is none of {', '.join(core.name for core in asked)}"
    raise InputError(
        what,
        at=str(search.bundle),
        hint="compile for the device's board, or tune on that board",
    )


class _OnCore:
    """The search for one core."""

    def __init__(
        self,
        search: Search,
        path: Path,
        core: Core,
        calls: Sequence[AskedCall],
        database: Database,
    ) -> None:
        self._on = search.on
        self._timeout = search.timeout
        self._path = path
        self._core = replace(core, tuned={})
        self._database = database
        self._calls = {c.signature: c for c in calls}
        known = {
            key: f
            for key, c in self._calls.items()
            if (f := self._known(c)) is not None
        }
        self._left = [c for key, c in self._calls.items() if key not in known]
        self.found = [self._choice(key, f, new=False) for key, f in known.items()]

    def _known(self, asked: AskedCall) -> TunedSchedule | None:
        """What was found before on this device, by this edgec, if it can still be done."""
        found = self._database.of(self._core.name).get(asked.signature)
        if found is None or (found.device, found.edgec) != (self._on, VERSION):
            return None
        if tuned(
            again(asked.call), replace(self._core, tuned={asked.signature: found})
        ):
            return found
        return None

    def search(
        self, executor: Executor, board: Board, target: ArchTarget, say: Progress
    ) -> bool:
        """Try what is left; False where the device is not of this core."""
        trials = [
            ScheduleTrial(
                c.signature,
                c.call,
                self._core,
                board.name,
                target,
                self._on,
                self._timeout,
            )
            for c in self._left
        ]
        say(f"try 1/{len(trials)}" if trials else "")
        with closing(each_done(executor, try_out, trials)) as done:
            for i, (trial, outcome) in enumerate(done, 2):
                if not outcome.ms:
                    return False
                self._keep(trial, outcome)
                say(f"try {min(i, len(trials))}/{len(trials)}")
        say("")
        return True

    def _keep(self, trial: ScheduleTrial, outcome: TrialOutcome) -> None:
        call = again(trial.call)
        ms = outcome.again
        ways = legal(call, trial.core)
        best = min(range(len(ways)), key=outcome.ms.__getitem__)
        best = best if ms[0] > BETTER * ms[best] else 0
        variant, schedule = ways[best]
        found = TunedSchedule(
            variant.name,
            dict(schedule),
            ms[best],
            ms[0],
            len(ms),
            self._on,
            outcome.estimated,
            VERSION,
            _what(call),
        )
        self._database = self._database.with_entry(
            self._core.name, trial.signature, found
        )
        write_whole(self._path, json.dumps(self._database.to_json(), indent=1) + "\n")
        self.found.append(self._choice(trial.signature, found, new=True))

    def _choice(self, key: str, f: TunedSchedule, *, new: bool) -> TunedCall:
        functions = self._calls[key].functions
        return TunedCall(
            functions, f.what, f.variant, f.schedule, f.ms, f.default_ms, f.tried, new
        )


def _cores(
    bundle: Bundle, search: Search
) -> tuple[Board, ArchTarget, Mapping[Core, tuple[AskedCall, ...]]]:
    """What the bundle asks of each core, the preferred first.

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
    read = from_json(
        bundle.read(CALLS_FILE), CallsFile, CALLS_FILE, at, "compile the model again"
    )
    kind, _, rest = search.on.partition(":")
    there, _, wanted = ("host", "", "") if kind == "local" else rest.partition("/")
    if kind in ("local", "emulated") and there != board.name:
        hint = f"compile it with --target {there}, or tune it on emulated:{board.name}"
        raise InputError(
            f"the bundle is for {board.name}, {search.on} is not", at=at, hint=hint
        )
    for target in board.targets:
        if wanted in ("", target.name) and (calls := read.targets.get(target.name)):
            _check_calls(read, at)
            return (
                board,
                target,
                {c: calls[c.name] for c in cores_of(board, target) if c.name in calls},
            )
    what = (
        "nothing that the bundle computes can be done in more than one way on "
        f"{wanted or board.name}"
    )
    raise InputError(
        what,
        at=at,
        hint="tune a bundle for 64-bit Arm or x86-64 with a part on the CPU",
    )


def _check_calls(read: CallsFile, at: str) -> None:
    """Raise InputError for calls that are none."""
    for asked in (
        a for cores in read.targets.values() for calls in cores.values() for a in calls
    ):
        try:
            again(asked.call)
        except (KeyError, TypeError, ValueError, IndexError) as e:
            what = f"{CALLS_FILE} is damaged: {asked.signature}: {e!r}"
            raise InputError(what, at=at, hint="compile the model again") from e


def _largest(bundle: Bundle, calls: Sequence[AskedCall]) -> list[AskedCall]:
    """By the multiply-accumulates of the ops that make them, the most first."""
    graph = read_graph(bundle)
    macs = {
        f"{row.segment}.{graph.segment(row.segment).functions[row.call]}": row.macs
        for row in graph.ops
        if row.call is not None
    }
    return sorted(calls, key=lambda c: -sum(macs.get(f, 0) for f in c.functions))


def _what(call: KernelCall) -> str:
    """For people: what a call reads first, and what comes out."""
    values = [
        p.value.type
        for c in (call, *call.then)
        for p in c.pointers()
        if p.value.const is None
    ]
    return f"{values[0]} -> {values[-1]}"
