"""An op that says too little, or what no op has, is refused where it is defined."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

import edgec.ops  # noqa: F401 (registers all operations)
from edgec.ir import Kernel, KernelCall, Op, OpDef, QuantRule, Sample, TensorType
from edgec.ir.kernel import KernelFamily
from edgec.ir.opdef import Arg
from edgec.ops import unary
from edgec.ops.arithmetic import Maximum
from edgec.ops.unary import Unary


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    """What a test defines is forgotten."""
    kept = dict(OpDef.registry)
    yield
    OpDef.registry.clear()
    OpDef.registry.update(kept)


def _call(self: OpDef, op: Op) -> KernelCall:
    return KernelCall.of(Kernel("none", ""), op.inputs[0], op.output)


def test_a_kernel_without_samples_is_refused() -> None:
    with pytest.raises(
        TypeError, match="op halved has no samples to try its kernel by"
    ):
        type("Halved", (OpDef,), {"kind": "halved", "c": _call})


def test_an_op_that_files_alone_know_needs_no_samples() -> None:
    class Asked(OpDef):
        kind = "asked"
        onnx = ("Asked",)

    Asked.check_samples()


@pytest.mark.parametrize(
    ("rule", "samples", "message"),
    [
        (QuantRule.FREE, (), "op halved has no sample"),
        (
            QuantRule.FREE,
            ("float32",),
            "op halved has no int8 sample, though its rule is FREE",
        ),
        (
            QuantRule.SAME,
            ("float32",),
            "op halved has no int8 sample, though its rule is SAME",
        ),
        (QuantRule.FLOAT, ("float32",), ""),
    ],
)
def test_an_int8_rule_without_an_int8_sample_is_refused(
    rule: QuantRule, samples: tuple[str, ...], message: str
) -> None:
    @dataclass(frozen=True)
    class Halved(OpDef):
        kind = "halved"
        quant = rule
        c = _call

        @classmethod
        def samples(cls) -> Iterator[Sample]:
            return (Sample(cls(), (Arg(TensorType((2,), dtype)),)) for dtype in samples)

    if not message:
        Halved.check_samples()
        return
    with pytest.raises(TypeError, match=message):
        Halved.check_samples()


def test_every_op_is_complete() -> None:
    for definition in OpDef.registry.values():
        definition.check_samples()


def test_a_misspelt_field_of_an_op_is_refused() -> None:
    with pytest.raises(TypeError, match="Larger says tflitee, which no operation has"):
        type("Larger", (Maximum,), {"kind": "larger", "tflitee": ("MAXIMUM",)})


def test_a_misspelt_field_of_a_row_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # The row adds an operation and its kernels, of which other tests find no C.
    monkeypatch.setattr(OpDef, "registry", dict(OpDef.registry))
    monkeypatch.setattr(KernelFamily, "registry", dict(KernelFamily.registry))
    with pytest.raises(TypeError, match="Twice says verions, which no operation has"):
        unary._row("twice", lambda x: x * 2, "2 x.", verions=(1, 2))  # type: ignore[call-arg]
    assert issubclass(
        unary._row("twice", lambda x: x * 2, "2 x.", versions=(1, 2)), Unary
    )
    assert (
        OpDef.registry["twice"]()
        .ref([np.ones(2, np.float32)], [TensorType((2,))], [TensorType((2,))])[0]
        .sum()
        == 4
    )
