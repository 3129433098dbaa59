"""Rewrites what almost maps into what maps.

One rewrite per file of this folder, found by its name.

The docstring of such a module says: pattern, condition, replacement, proof, and when it
pays. The module has

    KINDS: tuple[str, ...]                  the kinds of ops that it is asked about, and only when
                                            the rules refuse them
    BOUND: float                            0: bit-exact on int8, so it is made on quantized
                                            graphs. Otherwise it is made on
                                            float graphs before they are quantized, and this is
                                            the largest difference of the
                                            results, relative to the largest magnitude of the
                                            original's
    rewrite(r: Rewriter, op: Op) -> bool    edits around `op` where pattern and condition hold;
                                            False: nothing done
    example(rng: numpy Generator) -> Graph  a random graph that it rewrites, for the generated
                                            tests
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from edgec.ir import Graph, Op
from edgec.ir.rewrite import Rewriter
from edgec_partitioner.verdicts import Verdict, refusals

_ROUNDS = 100
"""More rounds than any model needs: rewrites that undo one another are a bug."""


@dataclass(frozen=True)
class Rewrite:
    """One module of this folder."""

    name: str
    doc: str
    kinds: tuple[str, ...]
    bound: float
    apply: Callable[[Rewriter, Op], bool]
    example: Callable[[np.random.Generator], Graph]


@dataclass(frozen=True)
class Applied:
    """One rewrite that was made. at: the name of the first output of the op that did
    not map; source: its node.

    made: the names of the first outputs of the ops that took its place.
    """

    rewrite: str
    at: str
    source: str
    made: tuple[str, ...]


@cache
def rewrites() -> Mapping[str, Rewrite]:
    """Every rewrite by name."""
    found: dict[str, Rewrite] = {}
    for info in pkgutil.iter_modules(__path__):
        if not info.name.startswith("_"):
            m = importlib.import_module(f"{__name__}.{info.name}")
            found[info.name] = Rewrite(
                info.name, m.__doc__ or "", m.KINDS, m.BOUND, m.rewrite, m.example
            )
    return found


def legalize(
    graph: Graph,
    *,
    exact: bool,
    optimistic: bool = False,
    disabled: Collection[str] = (),
    skip: Collection[tuple[str, str]] = (),
) -> tuple[Graph, list[Applied]]:
    """A copy of the graph in which ops that the rules refuse are rewritten, where a
    rewrite fits; and what was done.

    exact: make the bit-exact rewrites, for a quantized graph; else the others, for a
    float graph that will be quantized. disabled: names of rewrites to leave out. skip:
    (rewrite, name of the op's first output) to leave out.
    """
    table = [
        w
        for w in rewrites().values()
        if (w.bound == 0) == exact and w.name not in disabled
    ]
    result = graph.copy()
    applied = list[Applied]()
    for _ in range(_ROUNDS):
        r = Rewriter(result)
        for op in r.ops():
            for w in table:
                name = op.outputs[0].name
                if (
                    op.kind in w.kinds
                    and (w.name, name) not in skip
                    and _refused(op, optimistic)
                ):
                    before = set(result.ops)
                    source = op.source
                    if w.apply(r, op):
                        made = tuple(
                            o.outputs[0].name
                            for o in result.ops
                            if o not in before or o is op
                        )
                        applied.append(Applied(w.name, name, source, made))
                        break
        if not r.changed:
            return result, applied
    raise AssertionError(f"rewrites do not settle on {graph.name}: {applied[-4:]}")


def _refused(op: Op, optimistic: bool) -> bool:
    """Whether the rules keep the op from the Edge TPU, apart from its not being
    quantized yet.
    """
    found = tuple(x for x in refusals(op) if x.rule != "int8_tensors")
    return Verdict(found).place(optimistic) == "cpu"
