"""constant_folding, dead_code, common_subexpressions, cancel_transposes,
simplify_reshapes.
"""

from __future__ import annotations

import numpy as np

from edgec.ir import Quant
from edgec.ops.binary import Add, Mul
from edgec.ops.quantize import Dequantize, Quantize
from edgec.ops.shape import Reshape, Transpose
from edgec.ops.unary import Relu, Tanh
from tests.passes.chain import Chain

NHWC = (0, 2, 3, 1)
NCHW = (0, 3, 1, 2)
Q = Quant.per_tensor(0.5, 3)


def test_constants_are_computed() -> None:
    b = Chain()
    k = b.add(Tanh(), [b.add(Mul(), [b.number(0.5), b.weights(4)])])
    b.done(b.add(Add(), [b.x(2, 4), k])).run("constant_folding").delta(
        mul=-1, tanh=-1
    ).same(0)


def test_widened_weights_are_constants() -> None:
    b = Chain()
    half = b.const(np.array([1, 2, 3, 4], np.float16), "w")
    b.done(b.add(Add(), [b.x(4), b.add(Dequantize(), [half])])).run(
        "constant_folding"
    ).kinds("add").same(0)


def test_a_constant_output_stays_one() -> None:
    b = Chain()
    b.x(3)
    check = (
        b.done(b.add(Tanh(), [b.weights(3)], "k"))
        .run("constant_folding")
        .delta(tanh=-1)
        .same(0)
    )
    assert check.graph.outputs[0].name == "k"


def test_what_nothing_reads_goes() -> None:
    b = Chain()
    x = b.x(4)
    b.add(Relu(), [b.add(Tanh(), [x])])
    b.done(b.add(Tanh(), [x])).run("dead_code").delta(relu=-1, tanh=-1).same(0).settles(
        "dead_code"
    )


def test_equal_ops_are_one() -> None:
    b = Chain()
    x = b.x(4)
    pair = [b.add(Mul(), [x, b.number(2.0)]) for _ in range(2)]
    check = b.done(b.add(Add(), [b.add(Tanh(), [v]) for v in pair]))
    check.run("common_subexpressions").delta(mul=-1, tanh=-1).same(0).settles(
        "common_subexpressions"
    )
    assert len(check.graph.constants()) == 1


def test_two_outputs_stay_two() -> None:
    b = Chain()
    x = b.x(4)
    b.done(b.add(Tanh(), [x], "a"), b.add(Tanh(), [x], "b")).settles(
        "common_subexpressions"
    )


def test_unlike_scales_are_not_equal() -> None:
    b = Chain()
    x = b.x(4)
    ys = [b.add(Quantize(), [x], quant=Quant.per_tensor(s)) for s in (0.5, 0.25)]
    b.done(b.add(Add(), ys, quant=Q)).settles("common_subexpressions")


def test_inverse_transposes_cancel() -> None:
    b = Chain()
    y = b.add(Transpose(NHWC), [b.add(Transpose(NCHW), [b.x(1, 4, 5, 3)])])
    check = b.done(b.add(Relu(), [y])).run("cancel_transposes").kinds("relu").same(0)
    check.settles("cancel_transposes")


def test_a_chain_of_transposes_is_one() -> None:
    b = Chain()
    y = b.x(2, 3, 4, quant=Q)
    for perm in ((1, 0, 2), (0, 2, 1), (2, 1, 0)):
        y = b.add(Transpose(perm), [y])
    b.done(y).run("cancel_transposes").kinds("transpose").same()


def test_an_idle_transpose_between_border_values_stays() -> None:
    b = Chain()
    b.done(b.add(Transpose((0, 1)), [b.x(2, 3)], "y")).settles(
        "cancel_transposes"
    ).same(0)


def test_reshapes_in_a_row_are_one() -> None:
    b = Chain()
    y = b.add(Reshape((4, 6)), [b.add(Reshape((24,)), [b.x(2, 3, 4, quant=Q)])])
    b.done(b.add(Reshape((6, 4)), [y])).run("simplify_reshapes").kinds("reshape").same()


def test_a_reshape_to_the_same_shape_goes() -> None:
    b = Chain()
    y = b.add(Tanh(), [b.add(Reshape((2, 3)), [b.add(Tanh(), [b.x(2, 3)])])])
    check = (
        b.done(b.add(Reshape((2, 3)), [y], "y"))
        .run("simplify_reshapes")
        .kinds("tanh", "tanh")
        .same(0)
    )
    assert check.graph.outputs[0].name == "y"


def test_a_transpose_of_ones_is_a_reshape() -> None:
    b = Chain()
    y = b.add(Transpose(NCHW), [b.x(1, 1, 1, 7, quant=Q)])
    b.done(b.add(Reshape((1, 7)), [y])).run("simplify_reshapes").kinds("reshape").same()


def test_an_elementwise_op_needs_no_reshape_around_it() -> None:
    b = Chain()
    y = b.add(Tanh(), [b.add(Reshape((12,)), [b.x(3, 4)])])
    b.done(b.add(Relu(), [b.add(Reshape((3, 4)), [y])])).run("simplify_reshapes").kinds(
        "tanh", "relu"
    ).same(0)
