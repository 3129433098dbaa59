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
    (*_TIDY, "recognize_dilated_conv", "layout", "sink_transposes"),
    (*_TIDY, "simplify_reshapes"),
    (*_TIDY, "simplify_reshapes", *_RECOGNIZE, *_FOLD),
    ("recognize_quantized",),
    (*_TIDY, "layout", "sink_transposes"),
    (*_TIDY, "simplify_reshapes", *_FOLD),
)
"""Groups, each run until nothing changes.

Blocks of dilated convolutions are found before their transposes move. Transposes find
their places before those that only move ones become reshapes, and the folds come when
convolution, bias and activation stand side by side. Only then does what ONNX quantized
become int8: an op with all that is folded into it. Where that changed nothing, what
follows has nothing to do.
"""

_ROUNDS = 100
"""More rounds than any model needs: passes that undo one another are a bug."""


def available() -> dict[str, Pass]:
    """Every pass by name."""
    names = [
        m.name
        for m in pkgutil.iter_modules(passes.__path__)
        if not m.name.startswith("_")
    ]
    modules = {
        name: importlib.import_module(f"{passes.__name__}.{name}")
        for name in names
        if name != "pipeline"
    }
    return {name: module.run for name, module in modules.items()}


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
        changed = _fixed_point(
            graph, {name: table[name] for name in group if name not in disabled}, dump
        )
        if group == ("recognize_quantized",) and not changed:
            break
    verify(graph, "canonical")
    return graph


def _fixed_point(
    graph: Graph, group: dict[str, Pass], dump: Callable[[str, Graph], None] | None
) -> bool:
    """Run passes until nothing changes; tells whether anything did."""
    for rounds in range(_ROUNDS):
        changed = False
        for name, run in group.items():
            if run(graph):
                changed = True
                verify(graph, "canonical")
                if dump is not None:
                    dump(name, graph)
        if not changed:
            return rounds > 0
    raise InternalError(f"the passes {', '.join(group)} do not settle on {graph.name}")
