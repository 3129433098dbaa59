"""Which steps threads share: none that two threads compute slower than one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from edgec_devices.boards import Board
from edgec_devices.multicore import barrier_cycles

from edgec.ir import Graph, Sample, TensorType
from edgec.ir.opdef import Arg
from edgec.ops.concat import Concat
from edgec.ops.conv import Conv2D
from edgec.ops.matmul import FullyConnected
from edgec.ops.shape import Transpose
from edgec.schedule.cores import Core, cores_of
from edgec.schedule.rates import is_known
from edgec.schedule.steps import schedule
from tests.harness import sample_graph


def pi5() -> Core:
    """The core of a Pi 5, for code of four threads."""
    board = Board.load("pi5")
    (core,) = cores_of(board, board.targets[0], 4)
    return core


def convolution(side: int) -> Graph:
    """A 1x1 convolution of a square image."""
    args = (
        Arg(TensorType((1, side, side, 32))),
        Arg(TensorType((32, 1, 1, 32)), const=True),
        Arg(TensorType((32,)), const=True),
    )
    return sample_graph(Sample(Conv2D(), args))


def fully_connected(rows: int, outputs: int) -> Graph:
    args = (
        Arg(TensorType((rows, 512))),
        Arg(TensorType((outputs, 512)), const=True),
        Arg(TensorType((outputs,)), const=True),
    )
    return sample_graph(Sample(FullyConnected(), args))


def is_shared(graph: Graph, core: Core) -> bool:
    (step,) = schedule(graph, core).steps
    return step.shared


def test_a_barrier_takes_what_the_estimate_of_a_board_says() -> None:
    board = Board.load("pi5")
    assert pi5().barrier == barrier_cycles(board)
    assert pi5().last == board.caches[-1].kib << 10


def test_threads_share_what_is_worth_a_barrier() -> None:
    core = pi5()
    assert [is_shared(convolution(n), core) for n in (2, 4, 40)] == [False, False, True]
    assert not is_shared(convolution(40), replace(core, threads=1))
    assert is_shared(convolution(2), replace(core, barrier=0))


def test_a_core_without_rates_shares_by_its_best() -> None:
    core = replace(pi5(), name="some core")
    assert not is_known(core.name)
    assert [is_shared(convolution(n), core) for n in (2, 4, 40)] == [False, False, True]


@pytest.mark.parametrize(("rows", "shared"), [(1, False), (64, True)])
def test_threads_do_not_wait_for_the_memory_together(rows: int, shared: bool) -> None:
    """4 MiB of weights are more than the last cache; many rows are worth reading them."""
    graph = fully_connected(rows, 2048)
    assert is_shared(graph, pi5()) == shared
    # In a larger cache they are still there from the inference before.
    assert is_shared(graph, replace(pi5(), last=64 << 20))


def test_copies_are_shared_by_rows() -> None:
    core = pi5()
    image = TensorType((1, 80, 80, 12))
    joined = sample_graph(Sample(Concat(3), (Arg(image), Arg(image))))
    turned = sample_graph(Sample(Transpose((0, 3, 1, 2)), (Arg(image),)))
    for graph, kernel in ((joined, "ek_concat_part"), (turned, "ek_gather_f32_part")):
        (step,) = schedule(graph, core).steps
        assert step.shared
        assert {call.kernel.name for call in step.calls} == {kernel}
        (alone,) = schedule(graph, replace(core, threads=1)).steps
        assert not any(call.divisible for call in alone.calls)
