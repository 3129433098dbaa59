"""Einsum, read as transposes, sums and matrix products.

Semantics: ONNX Einsum, which is numpy.einsum. A letter names an axis; letters missing
in the output are summed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from edgec.ir import Builder, OnnxNode, Value
from edgec.ops.binary import Mul
from edgec.ops.broadcast import broadcast_to
from edgec.ops.compositions import Composed
from edgec.ops.gather import GatherNd
from edgec.ops.matmul import BatchMatMul
from edgec.ops.reduce import Sum
from edgec.ops.shape import Reshape, transpose

FIRST_GREEK = 0x391
"""Code point of the capital alpha: an equation has Latin letters only."""


@dataclass(frozen=True)
class _Term:
    """An operand of the product.

    Attributes:
        value: the tensor
        letters: one letter for each of its axes
    """

    value: Value
    letters: str


@dataclass(frozen=True)
class Einsum(Composed):
    """Einstein's summation over named axes."""

    kind = "einsum"
    onnx = ("Einsum",)

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Value:
        """Read Einsum as a chain of products of two operands.

        Letters that neither the output nor a later operand has are summed as early as
        possible.
        """
        b = node.build
        name = node.name
        values = [node.input(i) for i in range(len(node.inputs))]
        ranks = [value.type.rank for value in values]
        inputs, output = _parse_equation(node.attrs["equation"], ranks)
        terms: list[_Term] = []
        for value, letters in zip(values, inputs, strict=True):
            terms.append(_with_diagonals(b, _Term(value, letters), name))

        # A letter that only the first operand has is summed at once.
        others = output + _all_letters(terms[1:])
        result = _summed(b, terms[0], others, name)
        for i, term in enumerate(terms[1:], 1):
            # Letters of operands still to come must be kept.
            later = output + _all_letters(terms[i + 1 :])
            operand = _summed(b, term, result.letters + later, name)
            result = _summed(b, result, operand.letters + later, name)
            result = _product(b, result, operand, later, name)

        result = _summed(b, result, output, name)

        return _ordered(b, result, output, name)


def _all_letters(terms: Sequence[_Term]) -> str:
    """Return the letters of all terms, one after the other."""
    return "".join(term.letters for term in terms)


def _parse_equation(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Return the letters of each input, and those of the output.

    The axes of an ellipsis get capital Greek letters, aligned at the last. Raises
    ValueError when the equation does not fit the inputs.
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise ValueError(f"equation {equation} of {len(ranks)} inputs")

    if not arrow:
        right = _implicit_output(left)

    # Axes that an ellipsis stands for.
    widths: list[int] = []
    for text, rank in zip(inputs, ranks, strict=True):
        widths.append(rank - len(text.replace("...", "")))

    ellipses = [w for w, text in zip(widths, inputs, strict=True) if "..." in text]
    greek = "".join(chr(FIRST_GREEK + i) for i in range(max(ellipses, default=0)))

    # Ellipses broadcast: shorter ones are aligned at the end.
    letters: list[str] = []
    for text, width in zip(inputs, widths, strict=True):
        letters.append(text.replace("...", greek[len(greek) - width :]))

    if any(len(text) != rank for text, rank in zip(letters, ranks, strict=True)):
        raise ValueError(
            f"equation {equation} does not fit inputs of rank {', '.join(map(str, ranks))}"
        )

    return letters, right.replace("...", greek)


def _implicit_output(left: str) -> str:
    """Return the output of an equation without "->".

    It is the ellipsis and then, in alphabetical order, the letters that occur once.
    """
    letters = left.replace(",", "").replace("...", "")
    single = [letter for letter in set(letters) if letters.count(letter) == 1]
    ellipsis = "..." if "..." in left else ""

    return ellipsis + "".join(sorted(single))


def _with_diagonals(b: Builder, term: _Term, name: str) -> _Term:
    """Return the term with each repeated letter once: the diagonal of its two axes."""
    for letter in dict.fromkeys(term.letters):
        if term.letters.count(letter) == 1:
            continue
        first, second = (i for i, c in enumerate(term.letters) if c == letter)
        others = [i for i in range(len(term.letters)) if i not in (first, second)]

        # GatherND picks the elements (i, i) of the first two axes.
        x = transpose(b, term.value, (first, second, *others))

        places = np.arange(x.type.shape[0])
        pairs = np.stack([places, places], 1).astype(np.int64)
        index = b.const(pairs, "diagonal")
        letters = letter + "".join(term.letters[i] for i in others)
        term = _Term(b.add(GatherNd(), [x, index], name), letters)

    return term


def _summed(b: Builder, term: _Term, needed: str, name: str) -> _Term:
    """Return the term summed over the axes whose letters are not `needed`.

    The sum keeps its axes, which a reshape drops, so that layout changes can pass.
    """
    axes = tuple(i for i, c in enumerate(term.letters) if c not in needed)
    if not axes:
        return term

    total = b.add(Sum(axes), [term.value], name)

    # The summed axes have a size of 1.
    shape = tuple(d for i, d in enumerate(total.type.shape) if i not in axes)
    value = b.add(Reshape(shape), [total], name)

    return _Term(value, _letters_in(term.letters, needed))


def _letters_in(letters: str, others: str) -> str:
    """Return the letters that are among `others`, in their order."""
    return "".join(letter for letter in letters if letter in others)


def _letters_not_in(letters: str, others: str) -> str:
    """Return the letters that are not among `others`, in their order."""
    return "".join(letter for letter in letters if letter not in others)


@dataclass(frozen=True)
class _Axes:
    """The letters of a product of two terms by their parts, and their sizes.

    Attributes:
        batch: letters of both terms that the result keeps
        inner: letters of both terms that are summed
        rows, columns: letters of the first, of the second term alone
        sizes: elements of each letter, broadcast
    """

    batch: str
    inner: str
    rows: str
    columns: str
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, x: _Term, y: _Term, later: str) -> _Axes:
        """Return the parts of the letters; those in `later` are kept.

        A size of 1 gives way to the other term's, as broadcasting has it.
        """
        sizes: dict[str, int] = {}
        for term in (x, y):
            for letter, size in zip(term.letters, term.value.type.shape, strict=True):
                if sizes.get(letter, 1) == 1:
                    sizes[letter] = size

        shared = _letters_in(x.letters, y.letters)

        return cls(
            batch=_letters_in(shared, later),
            inner=_letters_not_in(shared, later),
            rows=_letters_not_in(x.letters, shared),
            columns=_letters_not_in(y.letters, shared),
            sizes=sizes,
        )

    def shape(self, letters: str) -> tuple[int, ...]:
        """Return the sizes of the letters."""
        return tuple(self.sizes[letter] for letter in letters)

    def matrix(
        self,
        b: Builder,
        term: _Term,
        first: str,
        second: str,
        name: str,
    ) -> Value:
        """Return the term as matrices [batch, first, second], its letters joined."""
        letters = self.batch + first + second

        # Each part of the letters becomes one axis of the matrix.
        ordered = _ordered(b, term, letters, name)

        # An axis of 1 is broadcast to the other operand's.
        full = broadcast_to(b, ordered, self.shape(letters), name)
        parts = (self.batch, first, second)
        joined = Reshape(tuple(prod(self.shape(part)) for part in parts))

        return b.add(joined, [full], name)


def _product(b: Builder, x: _Term, y: _Term, later: str, name: str) -> _Term:
    """Return the product of two terms, summed over letters that `later` lacks.

    Floats use a matrix product; integers, which have none, a sum of products.
    """
    axes = _Axes.of(x, y, later)
    if x.value.type.dtype == "float32":
        left = axes.matrix(b, x, axes.rows, axes.inner, name)
        right = axes.matrix(b, y, axes.inner, axes.columns, name)
        z = b.add(BatchMatMul(), [left, right], name)
    else:
        left = axes.matrix(b, x, axes.rows, axes.inner, name)
        right = axes.matrix(b, y, axes.columns, axes.inner, name)
        z = _sum_of_products(b, left, right, name)

    # The axes are split again.
    letters = axes.batch + axes.rows + axes.columns

    return _Term(b.add(Reshape(axes.shape(letters)), [z], name), letters)


def _sum_of_products(b: Builder, left: Value, right: Value, name: str) -> Value:
    """Return [n, r, c] of [n, r, k] and [n, c, k]: products, summed over k.

    It serves integers, which have no matrix product.
    """
    n, rows, depth = left.type.shape
    columns = right.type.shape[1]

    # Both are broadcast to [n, r, c, k].
    left_shape = (n, rows, 1, depth)
    right_shape = (n, 1, columns, depth)
    wide_left = b.add(Reshape(left_shape), [left], name)
    wide_right = b.add(Reshape(right_shape), [right], name)
    products = b.add(Mul(), [wide_left, wide_right], name)

    # A sum over the last axis, which stays with a size of 1.
    total = b.add(Sum((3,)), [products], name)
    return b.add(Reshape((n, rows, columns)), [total], name)


def _ordered(b: Builder, term: _Term, letters: str, name: str) -> Value:
    """Return the term's tensor with its axes in the order of `letters`.

    An order that is the term's own needs no op.
    """
    perm = tuple(term.letters.index(c) for c in letters)
    if perm == tuple(range(len(perm))):
        return term.value
    return transpose(b, term.value, perm)
