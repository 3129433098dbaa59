"""This machine, as the stages of a compile use it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from edgec.compiler.native import HostRunners
from edgec.ir import Graph
from edgec.steps import Progress
from edgec.toolchain.cc import Compiler

Dump = Callable[[str, Graph], None]
"""Called with the name of a pass or a stage and the resulting graph."""


@dataclass(frozen=True)
class Host:
    """The C compiler of this machine, and the functions for progress and dumps.

    Attributes:
        compiler: the C compiler.
        say: is called with each step.
        dump: is called with the graph after each pass and stage.
    """

    compiler: Compiler
    say: Progress = lambda text: None
    dump: Dump = lambda name, graph: None

    def runners(self) -> HostRunners:
        """Return the runners of graphs as C on this machine."""
        return HostRunners(self.compiler, self.say)
