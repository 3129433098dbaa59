"""The order of the passes.

A pass is a module of this folder with `run(graph) -> bool`; its name is the file's.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection

from edgec import passes
from edgec.errors import InternalError
from edgec.ir import Graph, verify

Pass = Callable[[Graph], bool]

_TIDY = (
    "constant_folding",
    "dead_code",
    "common_subexpressions",
    "cancel_transposes",
    "algebraic",
)
_RECOGNIZE = ("recognize_norms", "recognize_activations")
_FOLD = (
    "fold_batch_norm",
    "fold_bias",
    "fuse_activation",
    "fold_pad",
    "fold_crop",
    "fold_ahead",
    "dead_channels",
)

ORDER: tuple[tuple[str, ...], ...] = (
    # Blocks of dilated convolutions are recognised before their transposes move.
    (*_TIDY, "recognize_dilated_conv", "layout", "sink_transposes"),
    # Transposes find their places before those that only move ones become reshapes.
    (*_TIDY, "simplify_reshapes"),
    # Now convolution, bias and activation stand side by side.
    (*_TIDY, "simplify_reshapes", *_RECOGNIZE, *_FOLD),
    # An op becomes int8 with everything that was folded into it.
    ("recognize_quantized",),
    (*_TIDY, "layout", "sink_transposes"),
    (*_TIDY, "simplify_reshapes", *_FOLD),
)
"""Groups of passes, each run until nothing changes.

If "recognize_quantized" changes nothing, the groups after it would not either.
"""

MAX_ROUNDS = 100
"""More rounds than any model needs: passes that undo one another are a bug."""


def available() -> dict[str, Pass]:
    """Return every pass by name."""
    table: dict[str, Pass] = {}
    for info in pkgutil.iter_modules(passes.__path__):
        if info.name.startswith("_") or info.name == "pipeline":
            continue
        module = importlib.import_module(f"{passes.__name__}.{info.name}")
        table[info.name] = module.run
    return table


def optimize(
    graph: Graph,
    disabled: Collection[str] = (),
    dump: Callable[[str, Graph], None] | None = None,
) -> Graph:
    """Run all passes on the graph, which is changed, and return it.

    disabled: names of passes to leave out. dump: called with each pass's name and the
    graph whenever the pass has changed it.
    """
    table = available()
    verify(graph, "imported")
    for group in ORDER:
        enabled = {name: table[name] for name in group if name not in disabled}
        changed = _fixed_point(graph, enabled, dump)
        if group == ("recognize_quantized",) and not changed:
            break
    verify(graph, "canonical")
    return graph


def _fixed_point(
    graph: Graph, group: dict[str, Pass], dump: Callable[[str, Graph], None] | None
) -> bool:
    """Run passes until nothing changes, and return whether anything did.

    Raises InternalError if the passes still change the graph after `MAX_ROUNDS`.
    """
    for rounds in range(MAX_ROUNDS):
        changed = False
        for name, run in group.items():
            if not run(graph):
                continue
            changed = True
            verify(graph, "canonical")
            if dump is not None:
                dump(name, graph)
        if not changed:
            return rounds > 0
    raise InternalError(f"the passes {', '.join(group)} do not settle on {graph.name}")
