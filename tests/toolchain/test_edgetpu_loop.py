"""The loop with the stand-in compiler: what it refuses or chokes on goes to the CPU,
and the answers stay the same.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from edgec_devices.boards import Target
from edgec_partitioner.choice import Wishes

from edgec.compiler import edgetpu_loop
from edgec.compiler.edgetpu_loop import CompilerOutcome, compile_for_edgetpu
from edgec.compiler.lower import Lowered
from edgec.compiler.place import place
from edgec.compiler.quantize import FinalModel
from edgec.compiler.read import ReadModel
from edgec.compiler.samples import Samples
from edgec.errors import ToolError
from edgec.ir import Array, Graph, interp
from edgec.ops.binary import Add
from edgec.ops.shape import Reshape
from edgec.ops.unary import Logistic
from edgec.quantize.change.convert import quantize
from edgec.toolchain.edgetpu.runners import Answer, LocalRunner, answer
from tests.quantize.nets import Net
from tests.toolchain.stand_in_edgetpu_compiler import (
    Rules,
    StandInEdgetpuCompiler,
    stand_in,
)

UNSPECIFIED = (
    "Operation is otherwise supported, but not mapped due to some "
    "unspecified limitation"
)
LARGE = (
    "Started a compilation timeout timer of 180 seconds.\nERROR: "
    "Restored original execution plan after delegate "
    "application failure.\nCompilation failed: Compilation failed due to large "
    "activation tensors in model.\n"
    "Compilation child process completed within timeout period.\nCompilation failed! \n"
)


class StandInRunner:
    """The stand-in in this process, which is faster."""

    name = "the stand-in"

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.calls = list[list[str]]()

    def compile(self, models: Mapping[str, bytes]) -> Answer:
        with tempfile.TemporaryDirectory() as tmp:
            folder = Path(tmp)
            for name, data in models.items():
                (folder / f"{name}.tflite").write_bytes(data)
            arguments = [
                "-s",
                "-o",
                tmp,
                *(str(folder / f"{n}.tflite") for n in models),
            ]
            text, _ = stand_in(arguments, self.rules, len(self.calls))
            self.calls.append(list(models))
            return answer(
                text, models, {p.name: p.read_bytes() for p in folder.iterdir()}
            )


def chain(convs: int = 6) -> Graph:
    """Convolutions one after the other, with enough work for the Edge TPU; op i writes
    "y<i>".
    """
    net = Net("chain", 3)
    x = net.input(1, 48, 48, 8)
    for i in range(convs):
        x = net.conv(x, 48)
        # The chip computes it by a table of its own, which no file has.
        x = net.op(Logistic(), x) if i == 1 else x
    return net.done(x)


def branches() -> Graph:
    """Two branches of convolutions of one input, added."""
    net = Net("branches", 4)
    x = net.conv(net.input(1, 48, 48, 8), 48)
    left = net.conv(net.conv(x, 48), 48)
    right = net.conv(net.conv(x, 48), 48)
    return net.done(net.conv(net.op(Add(), left, right), 48))


def lowered(graph: Graph) -> Lowered:
    """As `lower` leaves a quantized model for a board with an Edge TPU."""
    rng = np.random.default_rng(5)
    samples = [
        {v.name: rng.normal(size=v.type.shape).astype(np.float32) for v in graph.inputs}
        for _ in range(2)
    ]
    done = quantize(graph, samples)
    target = Target.parse("pi4+coral")
    wishes = Wishes(as_chip=True)
    parts = place(done, target, wishes)
    return Lowered(
        target=target,
        read=ReadModel(graph, {}),
        samples=Samples((), samples, "test", False),
        wide=FinalModel(done),
        model=FinalModel(done),
        wishes=wishes,
        partition=parts,
    )


def names(model: Lowered) -> list[str]:
    """The first output of each op on the Edge TPU, in order."""
    return [
        op.outputs[0].name
        for s in model.partition.segments
        if s.place == "edgetpu"
        for op in s.graph.ops
    ]


def run(model: Lowered) -> dict[str, Array]:
    """All segments, one after the other, on the first sample."""
    values: dict[str, Array] = dict(model.samples.verify[0])
    for s in model.partition.segments:
        values |= interp(s.in_tflite, {v.name: values[v.name] for v in s.graph.inputs})
    return {v.name: values[v.name] for v in model.graph.outputs}


def asked(
    model: Lowered, rules: Rules
) -> tuple[Lowered, CompilerOutcome, StandInRunner]:
    runner = StandInRunner(rules)
    after, outcome = compile_for_edgetpu(model, runner, lambda text: None, needed=True)
    want = interp(model.graph, model.samples.verify[0])
    got = run(after)
    for name, y in want.items():  # whatever goes where, the numbers stay
        np.testing.assert_array_equal(got[name], y)
    return after, outcome, runner


def test_all_maps_at_once() -> None:
    model = lowered(chain())
    after, outcome, runner = asked(model, Rules())
    assert len(names(after)) >= 6
    assert after is model
    assert (outcome.rounds, outcome.calls, outcome.demoted, outcome.warning) == (
        1,
        1,
        (),
        None,
    )
    (result,) = outcome.segments.values()
    assert result.data is not None
    assert b"edgetpu-custom-op" in result.data
    assert outcome.version == "16.0.384591198"
    assert runner.calls == [list(outcome.segments)]


@pytest.mark.parametrize(
    "version", ["1.0.249710469", "2.1.302470888", "14.1.317412892", "16.0.384591198"]
)
def test_a_refused_op_goes_to_the_cpu_with_the_compilers_reason(version: str) -> None:
    model = lowered(chain())
    victim = names(model)[3]
    after, outcome, _ = asked(
        model, Rules(version=version, refuse={victim: UNSPECIFIED})
    )
    assert victim not in names(after)
    assert [f.op for f in outcome.demoted] == [victim]
    assert outcome.rounds == 2
    assert len(outcome.segments) == 2
    assert all(r.data is not None for r in outcome.segments.values())
    assert outcome.together
    (verdict,) = [
        v for op, v in after.partition.verdicts.items() if op.outputs[0].name == victim
    ]
    (refusal,) = verdict.refusals
    assert (refusal.rule, refusal.seen) == ("edgetpu_compiler", UNSPECIFIED)
    assert "smaller" in (refusal.fix or "")


def test_what_only_comes_after_a_refused_op_is_not_blamed() -> None:
    model = lowered(branches())
    first = names(model)[1:3]
    _, outcome, _ = asked(model, Rules(refuse={first[0]: "Operation not supported"}))
    assert [f.op for f in outcome.demoted] == [first[0]]


def test_of_one_opcode_those_are_blamed_that_were_ready() -> None:
    """The log counts refused and left-out convolutions, and does not say which is
    which.
    """
    model = lowered(chain())
    victims = names(model)[1::2]
    _, outcome, _ = asked(model, Rules(refuse=dict.fromkeys(victims, UNSPECIFIED)))
    assert next(f.op for f in outcome.demoted) == victims[0]
    assert {f.op for f in outcome.demoted} <= set(victims)
    assert outcome.rounds > 2


def test_an_opcode_that_is_refused_wherever_it_is() -> None:
    model = lowered(chain())
    after, outcome, _ = asked(
        model, Rules(refuse={"CONV_2D": "Operation not supported"})
    )
    assert names(after) == []
    assert outcome.segments == {}
    assert (outcome.rounds, outcome.version) == (1, "16.0.384591198")
    assert {f.refusal.seen for f in outcome.demoted} == {"Operation not supported"}


def test_a_version_that_it_does_not_know_takes_the_opcode_away() -> None:
    model = lowered(chain())
    after, outcome, runner = asked(model, Rules(newest={"CONV_2D": 0}))
    assert names(after) == []
    assert len(runner.calls) == 1
    assert (
        "Didn't find op for builtin opcode 'CONV_2D'" in outcome.demoted[0].refusal.seen
    )


@pytest.mark.parametrize(
    "failure",
    ["\nInternal compiler error. Aborting! \n", LARGE],
    ids=["internal", "large"],
)
@pytest.mark.parametrize("at", [0, 2, 5])
def test_an_op_that_breaks_the_compiler_is_found_by_halves(
    failure: str, at: int
) -> None:
    model = lowered(chain())
    victim = names(model)[at]
    after, outcome, runner = asked(model, Rules(breaks_on=(victim,), failure=failure))
    assert [f.op for f in outcome.demoted] == [victim]
    assert (
        "edgetpu_compiler must compile the region"
        in outcome.demoted[0].refusal.constraint
    )
    assert all(r.data is not None for r in outcome.segments.values())
    assert len(names(after)) >= len(names(model)) - 2
    assert outcome.calls == len(runner.calls) <= 9


def test_a_region_that_is_too_large_is_cut_in_two() -> None:
    model = lowered(chain(8))
    most = len(names(model)) - 3
    after, outcome, _ = asked(model, Rules(breaks_above=most, failure=LARGE))
    assert len(outcome.demoted) == 1
    assert len(outcome.segments) == 2
    assert "large activation tensors" in outcome.demoted[0].refusal.seen
    assert len(names(after)) == len(names(model)) - 1


def test_several_ops_that_break_it_are_found_one_after_the_other() -> None:
    model = lowered(chain(8))
    victims = (names(model)[1], names(model)[6])
    _, outcome, _ = asked(model, Rules(breaks_on=victims))
    assert all(r.data is not None for r in outcome.segments.values())
    assert set(victims) <= {f.op for f in outcome.demoted}


def test_an_internal_error_that_does_not_come_again() -> None:
    model = lowered(chain())
    after, outcome, runner = asked(model, Rules(breaks_above=1, failures=1))
    assert after is model
    assert (outcome.demoted, len(runner.calls)) == ((), 2)
    assert all(r.data is not None for r in outcome.segments.values())


def test_segments_that_do_not_compile_together_are_compiled_alone() -> None:
    model = lowered(chain())
    victim = names(model)[3]
    _, outcome, runner = asked(
        model, Rules(refuse={victim: UNSPECIFIED}, together=False)
    )
    assert not outcome.together
    assert all(r.data is not None for r in outcome.segments.values())
    assert [len(c) for c in runner.calls] == [1, 2, 1, 1]


@pytest.mark.parametrize(
    "writes", ["", "00" * 64, (b"\0\0\0\0TFL3" + b"\xff" * 90).hex()]
)
def test_a_file_that_is_none_is_not_used(writes: str) -> None:
    after, outcome, _ = asked(lowered(chain()), Rules(writes=writes))
    (result,) = outcome.segments.values()
    assert result.data is None
    assert "wrote a file for" in (result.problem or "")
    assert after.partition.segments


def test_a_compiler_that_says_whole_but_left_ops_is_not_believed() -> None:
    model = lowered(chain())
    victim = names(model)[3]
    after, outcome, _ = asked(model, Rules(refuse={victim: UNSPECIFIED}, lies=True))
    assert victim not in names(after)
    assert outcome.demoted[0].refusal.seen == "it gave no reason"


@pytest.mark.parametrize(
    "says", ["", "rubbish\x00\n", "Edge TPU Compiler version 16.0.384591198\n"]
)
def test_a_compiler_that_never_answers_sensibly_blames_no_op(says: str) -> None:
    model = lowered(chain())
    after, outcome, runner = asked(model, Rules(says=says))
    assert after is model
    assert outcome.demoted == ()
    assert len(runner.calls) <= 8
    (result,) = outcome.segments.values()
    assert "did not compile" in (result.problem or "")


def test_an_invalid_file_is_not_cut_up() -> None:
    model = lowered(chain())
    says = (
        "Edge TPU Compiler version 15.0.340273435\nInvalid model: "
        "seg1.tflite\nModel not quantized\n"
    )
    after, outcome, runner = asked(model, Rules(says=says))
    assert after is model
    assert len(runner.calls) == 1
    (result,) = outcome.segments.values()
    assert "Model not quantized" in (result.problem or "")


def test_rounds_and_calls_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = lowered(chain(8))
    rules = Rules(refuse=dict.fromkeys(names(model)[1::2], UNSPECIFIED))
    monkeypatch.setattr(edgetpu_loop, "MAX_ROUNDS", 2)
    _, outcome, _ = asked(model, rules)
    assert outcome.rounds == 2
    assert outcome.warning == "edgetpu_compiler still refuses operations after 2 rounds"
    monkeypatch.setattr(edgetpu_loop, "MAX_CALLS", 3)
    _, outcome, runner = asked(model, Rules(breaks_on=(names(model)[4],)))
    assert len(runner.calls) == 3
    assert outcome.warning == "gave up after 3 calls of edgetpu_compiler"


def test_uint8_files_are_understood_by_their_inner_names() -> None:
    """A border's QUANTIZE stands for the op behind it."""
    net = Net("u", 6)
    x = net.conv(net.input(1, 48, 48, 8), 48)
    graph = net.done(net.op(Reshape((1, 48 * 48, 48)), net.conv(x, 48)))
    model = lowered(graph)
    segment = next(s for s in model.partition.segments if s.place == "edgetpu").graph
    first = segment.ops[0]
    last = segment.ops[-1]
    of = edgetpu_loop._op_of
    assert of(segment, first.outputs[0].name) is first
    assert of(segment, f"{last.outputs[0].name}_inner") is last
    assert of(segment, f"{segment.inputs[0].name}_inner") is first
    assert of(segment, "nosuch") is None


def test_a_compiler_that_hangs_is_stopped_with_its_children(tmp_path: Path) -> None:
    double = StandInEdgetpuCompiler(tmp_path)
    double.program.write_text("#!/bin/sh\nsleep 60 & echo started >&2\nwait\n")
    model = lowered(chain(2))
    _, outcome = compile_for_edgetpu(
        model,
        LocalRunner(str(double.program), timeout=0.2),
        lambda text: None,
        needed=True,
    )
    (result,) = outcome.segments.values()
    assert "no result after 0.2 s" in (result.problem or "")


def test_a_program_that_cannot_run_is_an_error_only_when_it_was_asked_for(
    tmp_path: Path,
) -> None:
    model = lowered(chain(2))
    runner = LocalRunner(str(tmp_path / "absent"))
    with pytest.raises(ToolError, match="cannot run"):
        compile_for_edgetpu(model, runner, lambda text: None, needed=True)
    after, outcome = compile_for_edgetpu(model, runner, lambda text: None, needed=False)
    assert after is model
    assert "cannot run" in (outcome.warning or "")


def test_progress_says_what_is_asked() -> None:
    said: list[str] = []
    model = lowered(chain())
    compile_for_edgetpu(
        model,
        StandInRunner(Rules(breaks_on=(names(model)[2],))),
        said.append,
        needed=True,
    )
    assert said[0].startswith("asking edgetpu_compiler: seg")
    assert any(", operations 1 to " in text for text in said)
