"""The verbs whose results for a cascade (docs/cascades.md) are those of several networks.

    from edgec import cascades
    cascades.compile("cascade.toml", "pi4+coral", "faces.edgec").networks

`edgec.compile`, `explain` and `bench` do the same; type checkers know the results of
these. All other verbs of `edgec` take the bundle of a cascade as any other.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from edgec.options.compile import CompileCall, CompileOptions
from edgec.options.declared import part, takes

if TYPE_CHECKING:
    from edgec.compiler.cascade import CompiledCascade

__all__ = ["compile"]


@takes(CompileCall)
def compile(options: CompileCall) -> CompiledCascade:
    """Compile the networks of a cascade into one verified bundle."""
    from edgec.catalogue.fetching import local_file
    from edgec.compiler.cascade import compile_cascade

    file = local_file(Path(str(options.model)), options.say)
    return compile_cascade(file, part(options, CompileOptions), options.say)
