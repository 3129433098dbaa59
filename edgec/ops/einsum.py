"""Einsum, read as transposes, sums and matrix products."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from edgec.ir import Builder, OnnxNode, Value
from edgec.ops.binary import Mul
from edgec.ops.broadcast import broadcast_to
from edgec.ops.composed import Composed
from edgec.ops.gather import GatherNd
from edgec.ops.matmul import BatchMatMul
from edgec.ops.reduce import Sum
from edgec.ops.shape import Reshape, transpose


@dataclass(frozen=True)
class _Term:
    """A value, and a letter for each of its axes."""

    value: Value
    letters: str


@dataclass(frozen=True)
class Einsum(Composed):
    """Einstein's summation."""

    kind = "einsum"
    onnx = ("Einsum",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Operands are taken in one after the other; of each pair the letters that
        nothing else needs are summed.
        """
        b = node.build
        name = node.name
        values = [node.input(i) for i in range(len(node.inputs))]
        inputs, output = _letters(node.attrs["equation"], [v.type.rank for v in values])
        terms = [
            _distinct(b, _Term(v, letters), name)
            for v, letters in zip(values, inputs, strict=True)
        ]
        done = _summed(
            b, terms[0], output + "".join(t.letters for t in terms[1:]), name
        )
        for i, term in enumerate(terms[1:], 1):
            later = output + "".join(t.letters for t in terms[i + 1 :])
            term = _summed(b, term, done.letters + later, name)
            done = _product(
                b, _summed(b, done, term.letters + later, name), term, later, name
            )
        done = _summed(b, done, output, name)
        return _ordered(b, done, output, name)


def _letters(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Letters of every input and of the output; those of an ellipsis are capital Greek
    ones.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise ValueError(f"equation {equation} of {len(ranks)} inputs")
    if not arrow:
        given = "".join(inputs).replace("...", "")
        right = "..." * ("..." in left) + "".join(
            sorted(c for c in set(given) if given.count(c) == 1)
        )
    widths = [
        rank - len(text.replace("...", ""))
        for text, rank in zip(inputs, ranks, strict=True)
    ]
    greek = "".join(
        chr(0x391 + i)
        for i in range(
            max(
                [w for w, t in zip(widths, inputs, strict=True) if "..." in t],
                default=0,
            )
        )
    )
    found = [
        text.replace("...", greek[len(greek) - width :])
        for text, width in zip(inputs, widths, strict=True)
    ]
    if any(len(text) != rank for text, rank in zip(found, ranks, strict=True)):
        raise ValueError(
            f"equation {equation} does not fit inputs of rank {', '.join(map(str, ranks))}"
        )
    return found, right.replace("...", greek)


def _distinct(b: Builder, term: _Term, name: str) -> _Term:
    """A letter twice is a diagonal."""
    for letter in dict.fromkeys(term.letters):
        if term.letters.count(letter) > 1:
            first, second = (i for i, c in enumerate(term.letters) if c == letter)
            rest = [i for i in range(len(term.letters)) if i not in (first, second)]
            x = transpose(b, term.value, (first, second, *rest))
            along = np.arange(x.type.shape[0])
            index = b.const(np.stack([along, along], 1).astype(np.int64), "diagonal")
            letters = letter + "".join(term.letters[i] for i in rest)
            term = _Term(b.add(GatherNd(), [x, index], name), letters)
    return term


def _summed(b: Builder, term: _Term, needed: str, name: str) -> _Term:
    """Without the axes that nothing needs."""
    axes = tuple(i for i, c in enumerate(term.letters) if c not in needed)
    if not axes:
        return term
    left = "".join(c for c in term.letters if c in needed)
    total = b.add(Sum(axes), [term.value], name)
    shape = tuple(d for i, d in enumerate(total.type.shape) if i not in axes)
    return _Term(b.add(Reshape(shape), [total], name), left)


def _product(b: Builder, x: _Term, y: _Term, later: str, name: str) -> _Term:
    """Of two: floats by a matrix product over the letters that end here."""
    shared = [c for c in x.letters if c in y.letters]
    batch = "".join(c for c in shared if c in later)
    inner = "".join(c for c in shared if c not in later)
    rows, columns = ("".join(c for c in t.letters if c not in shared) for t in (x, y))
    sizes: dict[str, int] = {}
    for term in (x, y):
        for c, d in zip(term.letters, term.value.type.shape, strict=True):
            sizes[c] = d if sizes.get(c, 1) == 1 else sizes[c]

    def matrix(term: _Term, first: str, second: str) -> Value:
        v = _ordered(b, term, batch + first + second, name)
        v = broadcast_to(b, v, tuple(sizes[c] for c in batch + first + second), name)
        return b.add(
            Reshape(
                tuple(prod(sizes[c] for c in part) for part in (batch, first, second))
            ),
            [v],
            name,
        )

    if x.value.type.dtype == "float32":
        z = b.add(
            BatchMatMul(), [matrix(x, rows, inner), matrix(y, inner, columns)], name
        )
    else:
        left = matrix(x, rows, inner)
        right = matrix(y, columns, inner)
        n, r, k = left.type.shape
        wide = [
            b.add(Reshape((n, r, 1, k)), [left], name),
            b.add(Reshape((n, 1, right.type.shape[1], k)), [right], name),
        ]
        total = b.add(Sum((3,)), [b.add(Mul(), wide, name)], name)
        z = b.add(Reshape((n, r, right.type.shape[1])), [total], name)
    letters = batch + rows + columns
    return _Term(b.add(Reshape(tuple(sizes[c] for c in letters)), [z], name), letters)


def _ordered(b: Builder, term: _Term, letters: str, name: str) -> Value:
    """The axes in this order."""
    perm = tuple(term.letters.index(c) for c in letters)
    if perm == tuple(range(len(perm))):
        return term.value
    return transpose(b, term.value, perm)
