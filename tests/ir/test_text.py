"""The text form parses back to the same graph, whatever the names, types and constants."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgec.ir import Builder, Graph, Quant, TensorType, parse, print_graph
from edgec.ir.text import ParseError
from edgec.ops.binary import Add
from edgec.ops.shape import Reshape

_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
_scales = st.floats(2.0**-20, 1024.0, width=32)
_quants = st.builds(
    lambda s, z: Quant.per_tensor(s, z), _scales, st.integers(-128, 127)
)


@st.composite
def _graphs(draw: st.DrawFn) -> Graph:
    """A chain of adds and reshapes with odd names, scales and constants."""
    b = Builder(draw(_names))
    size = draw(st.integers(1, 12))
    quant = draw(_quants | st.none())
    dtype = "int8" if quant is not None else "float32"
    x = b.input(draw(_names), TensorType((1, size), dtype, quant))
    for _ in range(draw(st.integers(0, 5))):
        if draw(st.booleans()):
            seed = draw(st.integers(0, 99))
            data = np.random.default_rng(seed).normal(0, 50, size).astype(dtype)
            const = b.const(data, draw(_names), quant)
            b.source = draw(st.text(max_size=5))
            x = b.add(
                Add(draw(st.sampled_from(["none", "relu6"]))),
                [x, const],
                draw(_names),
                quant,
            )
        else:
            x = b.add(Reshape((1, size)), [x], draw(_names), quant)
    b.graph.outputs = [x]
    return b.graph


@given(_graphs())
def test_parse_of_print_is_the_graph(graph: Graph) -> None:
    text = print_graph(graph)
    again = parse(text)
    assert print_graph(again) == text
    assert again == graph
    for a, b in zip(again.constants(), graph.constants(), strict=True):
        assert a.const is not None
        assert b.const is not None
        assert a.const.tobytes() == b.const.tobytes()


def test_non_finite_constants_survive() -> None:
    b = Builder("g")
    x = b.input("x", TensorType((3,)))
    c = b.const(np.array([np.inf, -np.inf, np.nan], np.float32))
    b.graph.outputs = [b.add(Add(), [x, c])]
    again = parse(print_graph(b.graph)).constants()[0].const
    assert again is not None
    np.testing.assert_array_equal(again, c.const)


def test_per_channel_scales_survive() -> None:
    b = Builder("g")
    quant = Quant((0.5, float(np.float32(0.1))), (0, 0), 0)
    b.graph.outputs = [b.const(np.zeros((2, 3), np.int8), "w", quant)]
    assert parse(print_graph(b.graph)).outputs[0].type.quant == quant


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%y = nosuch(%x) {} : float32[1]", "unknown op nosuch"),
        ("%y = add(%x, %z) {act='none'} : float32[1]", "'z'"),
        ("hello", "not a graph, input, const, op, output or state"),
        ("input %x : float32[1]", "defined twice"),
    ],
)
def test_errors_name_the_line(line: str, message: str) -> None:
    with pytest.raises(ParseError, match="line 3") as e:
        parse(f'graph "g"\ninput %x : float32[1]\n{line}\n')
    assert message in str(e.value)


@pytest.mark.parametrize(
    "line",
    [
        "const %c : int64[1] = [99999999999999999999999]",
        "const %c : float32[1] = " + "[" * 5000,
        "input %x : int8[4] q(0.5, 0)+(1)",
        "input %x : int8[4] q(0.5)",
        "input %x : int8[4] q(0.5, 1e999)",
        "input %x : int8[4] q(nan, 0)",
        "input %x : int8[4] q((0.5, 1e999), (0, 0), axis=0)",
        "%y = relu(%x) {), f(} : float32[4]",
        "%y = relu(%x) {a=1)+(1} : float32[4]",
    ],
)
def test_what_is_no_value_is_said_with_its_line(line: str) -> None:
    with pytest.raises(ParseError, match="line 3"):
        parse(f'graph "g"\ninput %x : float32[4]\n{line}\n')


def test_graphs_that_differ_in_a_scale_differ() -> None:
    """Equality is that of the texts: what only a scale or an element tells apart is not
    the same.
    """
    texts = [
        f'graph "g"\ninput %x : int8[2] q({scale}, 0)\nconst %c : '
        f"float32[1] = [{element}]\noutput %x\noutput %c\n"
        for scale, element in (("0.5", "1.0"), ("0.25", "1.0"), ("0.5", "2.0"))
    ]
    graphs = [parse(text) for text in texts]
    assert graphs[0] == parse(texts[0])
    assert graphs[0] != graphs[1]
    assert graphs[0] != graphs[2]
