"""The order of the passes.

A pass is a module of this folder with `run(graph) -> bool`; its name is the file's.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from edgec import passes
from edgec.errors import EdgecError, InternalError
from edgec.ir import Graph, verify

Dump = Callable[[str, Graph], None]
"""Is called with a pass's name and the graph that the pass has changed."""
MAX_ROUNDS = 100
"""More rounds than any model needs: passes that undo one another are a bug."""


@dataclass(frozen=True)
class Pass:
    """A change of the graph that leaves its results the same.

    Attributes:
        name: the name of the module
        run: changes the graph, and returns whether it did
        requires: the stage of `edgec.ir.verify` whose rules the graph keeps before
        ensures: the stage whose rules it keeps after
    """

    name: str
    run: Callable[[Graph], bool]
    requires: str = "imported"
    ensures: str = "canonical"


@dataclass(frozen=True)
class Group:
    """Passes that are run until none of them changes the graph.

    Attributes:
        names: of the passes, in their order
        ends_if_unchanged: the groups after it have nothing to do where it changed
            nothing
    """

    names: tuple[str, ...]
    ends_if_unchanged: bool = False


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

ORDER: tuple[Group, ...] = (
    # Blocks of dilated convolutions are recognised before their transposes move.
    Group((*_TIDY, "recognize_dilated_conv", "layout", "sink_transposes")),
    # Transposes find their places before those that only move ones become reshapes.
    Group((*_TIDY, "simplify_reshapes")),
    # Now convolution, bias and activation stand side by side.
    Group((*_TIDY, "simplify_reshapes", *_RECOGNIZE, *_FOLD)),
    # An op becomes int8 with everything that was folded into it.
    Group(("recognize_quantized",), ends_if_unchanged=True),
    Group((*_TIDY, "layout", "sink_transposes")),
    Group((*_TIDY, "simplify_reshapes", *_FOLD)),
)


def available() -> dict[str, Pass]:
    """Return every pass by name."""
    table: dict[str, Pass] = {}
    for info in pkgutil.iter_modules(passes.__path__):
        if info.name.startswith("_") or info.name == "pipeline":
            continue
        module = importlib.import_module(f"{passes.__name__}.{info.name}")
        table[info.name] = Pass(info.name, module.run)
    return table


def optimize(
    graph: Graph, disabled: Collection[str] = (), dump: Dump | None = None
) -> Graph:
    """Run all passes on the graph, which is changed, and return it.

    disabled: names of passes to leave out.
    """
    table = available()
    pipeline = _Pipeline(graph, dump)
    for group in ORDER:
        enabled = [table[name] for name in group.names if name not in disabled]
        if not pipeline.settle(enabled) and group.ends_if_unchanged:
            break
    verify(graph, "canonical")
    return graph


@dataclass
class _Pipeline:
    """Runs passes on a graph, and remembers which changed it."""

    graph: Graph
    dump: Dump | None
    changed_by: list[str] = field(default_factory=list)

    def settle(self, group: Collection[Pass]) -> bool:
        """Run passes until nothing changes, and return whether anything did.

        Raises InternalError if the passes still change the graph after `MAX_ROUNDS`.
        """
        for stage in {step.requires for step in group}:
            verify(self.graph, stage)

        for rounds in range(MAX_ROUNDS):
            changed = [self._run(step) for step in group]
            if not any(changed):
                return rounds > 0
        names = ", ".join(step.name for step in group)
        raise InternalError(f"the passes {names} do not settle on {self.graph.name}")

    def _run(self, step: Pass) -> bool:
        """Run a pass, and return whether it changed the graph.

        Raises InternalError, with the passes that changed the graph before, where it
        fails or breaks a rule of the graph.
        """
        try:
            if not step.run(self.graph):
                return False
            verify(self.graph, step.ensures)
        except EdgecError:
            raise
        except Exception as e:
            before = ", ".join(dict.fromkeys(self.changed_by)) or "none"
            raise InternalError(
                f"the pass {step.name} fails on {self.graph.name}: {e}; "
                f"passes that changed the graph before: {before}"
            ) from e
        self.changed_by.append(step.name)
        if self.dump is not None:
            self.dump(step.name, self.graph)
        return True
