"""Candidates tried side by side, and remembered: whoever does it and whatever was done
before, the same comes of it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from typing import Any

import pytest

from edgec import executors
from edgec.compiler.native import HostRunners, native_compiler
from edgec.compiler.workers import Workers
from edgec.errors import InputError
from edgec.executors import Shared, cores, in_order
from edgec.ir import Graph, print_graph
from edgec.quantize import trials
from edgec.quantize.hands import CandidateExecutor
from edgec.quantize.once import Memoized
from edgec.quantize.recipe import Recipe
from edgec.quantize.search import QuantizedModel, search
from tests.quantize.nets import NETS, samples

RECIPE = Recipe.of(
    {
        "candidate": [
            {"name": "minmax", "steps": ["lower", "minmax"]},
            {"name": "choose", "steps": ["lower", "choose", "bias"]},
            {"name": "equalize", "steps": ["lower", "equalize", "choose", "gptq"]},
        ]
    },
    "three",
)


def searched(
    graph: Graph, hands: CandidateExecutor, told: list[str] | None = None
) -> QuantizedModel:
    said = told if told is not None else []
    return search(
        RECIPE,
        graph,
        samples(graph, 8),
        HostRunners(native_compiler(None), said.append),
        said.append,
        hands,
    )


@contextmanager
def cluster() -> Iterator[Executor]:
    distributed = pytest.importorskip(
        "distributed", reason="no Dask: pip install 'edgec[dask]'"
    )
    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        dashboard_address=None,
        host="127.0.0.1",
        silence_logs="CRITICAL",
    ) as two:
        address = two.scheduler_address.replace("tcp://", "dask://")
        with Workers.of(address).executor(1, 30) as executor:
            yield executor


@pytest.mark.slow
@pytest.mark.parametrize(
    "pool",
    [
        lambda: ThreadPoolExecutor(3),
        lambda: ProcessPoolExecutor(2, get_context("spawn")),
        cluster,
    ],
    ids=["threads", "processes", "dask"],
)
def test_the_same_whoever_tries_them(pool: Any) -> None:
    graph = NETS["residual"]()
    alone = searched(graph, CandidateExecutor())
    told: list[str] = []
    with pool() as executor:
        found = searched(graph, CandidateExecutor(executor), told)
    assert found.graph == alone.graph
    assert json.dumps(found.to_json()) == json.dumps(alone.to_json())
    tries = [t for t in told if t.startswith("try ")]
    assert tries[0] == "try 1/9"
    assert tries[-1] == "try 9/9"
    while_trying = told[told.index(tries[0]) : told.index(tries[-1])]
    # the steps of several at once are no progress
    assert {t.split()[0] for t in while_trying} == {"try"}


class Kept(dict[str, bytes]):
    """A memory; `room`: results that it takes before the search is interrupted."""

    room = 99

    def put(self, key: str, data: bytes) -> None:
        if len(self) == self.room:
            raise KeyboardInterrupt
        self[key] = data


@pytest.mark.parametrize("threads", [1, 2])
def test_an_interrupted_search_goes_on(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes none of the candidates again that were judged, and ends as one that was
    not interrupted.
    """
    graph = NETS["residual"]()
    memory = Kept()
    alone = searched(graph, CandidateExecutor())
    made = list[trials.CandidateTrial]()
    real = trials.judged

    def judged(
        trial: trials.CandidateTrial, shared: Shared[trials.SearchSetting]
    ) -> trials.Score:
        made.append(trial)
        return real(trial, shared)

    monkeypatch.setattr("edgec.quantize.hands.judged", judged)
    memory.room = 4
    pool = ThreadPoolExecutor(threads)
    executor = pool if threads > 1 else None
    with pytest.raises(KeyboardInterrupt):
        searched(graph, CandidateExecutor(executor, memory))
    pool.shutdown()
    assert len(memory) == 4
    memory.room = 99
    told = list[str]()
    made.clear()
    found = searched(graph, CandidateExecutor(None, memory), told)
    assert len(made) == 5
    assert next(t for t in told if t.startswith("try")) == "try 5/9"
    assert found.graph == alone.graph
    assert json.dumps(found.to_json()) == json.dumps(alone.to_json())
    made.clear()
    assert searched(graph, CandidateExecutor(None, memory)).graph == alone.graph
    assert not made


def test_what_is_remembered_is_of_these_samples_and_this_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph = NETS["chain"]()
    tries = samples(graph, 4)
    one = trials.fingerprint(graph, tries)
    assert one == trials.fingerprint(NETS["chain"](), samples(graph, 4))
    assert one != trials.fingerprint(graph, tries[:3])
    assert one != trials.fingerprint(NETS["residual"](), tries)
    tries[0][graph.inputs[0].name].flat[3] += 1
    assert one != trials.fingerprint(graph, tries)
    tries[0][graph.inputs[0].name].flat[3] -= 1
    monkeypatch.setattr(trials, "program", lambda: "another")
    assert one != trials.fingerprint(graph, tries)


def test_nothing_is_kept_in_the_process() -> None:
    searched(NETS["chain"](), CandidateExecutor())
    assert not trials._lines


def test_what_threads_need_together_is_made_once() -> None:
    once = Memoized()
    made = list[int]()
    barrier = threading.Barrier(4)

    def make() -> int:
        made.append(1)
        return 7

    def one(_: int) -> int:
        barrier.wait()
        return once.get("key", make)

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(one, range(4))] == [7] * 4
    assert made == [1]


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (None, Workers()),
        ("3", Workers(3)),
        (" dask://pc:8786/ ", Workers(None, "pc:8786")),
    ],
)
def test_workers(given: str | None, want: Workers) -> None:
    assert Workers.of(given) == want


@pytest.mark.parametrize("given", ["0", "-1", "two", "", "dask://pc", "tcp://pc:1"])
def test_no_workers(given: str) -> None:
    with pytest.raises(InputError, match="names no workers"):
        Workers.of(given)


def test_any_number_of_cores_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = NETS["residual"]()
    found = list[str]()
    for there in ({0}, {0, 1, 2, 3, 4}):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, there=there: there)
        assert cores() == len(there)
        result = searched(graph, CandidateExecutor())
        found.append(print_graph(result.graph) + json.dumps(result.to_json()))
    assert found[0] == found[1]


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> None:
    four = threading.Semaphore(4)
    monkeypatch.setattr(executors, "_room", lambda: four)


@pytest.mark.usefixtures("room")
def test_no_more_items_than_cores_however_many_ask() -> None:
    now = 0
    most = 0
    lock = threading.Lock()

    def work(i: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.002)
        with lock:
            now -= 1

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda _: list(in_order(work, range(20), 4)), range(5)))
    assert 1 < most <= 4


@pytest.mark.usefixtures("room")
def test_in_order_whichever_is_done_first() -> None:
    begun = list[int]()
    last = threading.Event()

    def work(i: int) -> int:
        begun.append(i)
        if i == 0:
            assert last.wait(10)
        elif i == 3:
            last.set()
        return -i

    assert [*in_order(work, range(9), 4)] == [-i for i in range(9)]
    begun.clear()
    some = in_order(lambda i: begun.append(i), range(100), 2)
    next(some)
    some.close()
    assert len(begun) <= 3, "no more than soon wanted"
    with pytest.raises(ZeroDivisionError):
        list(in_order(lambda i: 1 // (3 - i), range(9), 2))
