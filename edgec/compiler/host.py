"""What stages of a compile need of this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgec.compiler.native import HostRunners
from edgec.ir import Graph
from edgec.steps import Progress
from edgec.toolchain.cc import Compiler

Dump = Callable[[str, Graph], None]
"""Is called with the name of a pass or a stage and the graph that it left."""


@dataclass(frozen=True)
class Host:
    """The C compiler of this machine, and who is told of progress and of graphs."""

    compiler: Compiler
    say: Progress = lambda text: None
    dump: Dump = lambda name, graph: None

    def runners(self) -> HostRunners:
        """Return what runs graphs as C on this machine."""
        return HostRunners(self.compiler, self.say)
