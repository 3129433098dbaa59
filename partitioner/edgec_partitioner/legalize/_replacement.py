"""Adds the float ops that replace an op."""

from __future__ import annotations

import numpy as np

from edgec.ir import Op, OpDef, Value
from edgec.ir.rewrite import Rewriter


class Replacement:
    """Adds ops right before the op that they replace.

    Their results have its name with a suffix.
    """

    def __init__(self, r: Rewriter, op: Op) -> None:
        self._r = r
        self._op = op
        self._name = op.output.name

    def add(self, suffix: str, spec: OpDef, *inputs: Value) -> Value:
        """Add an op, and return its result."""
        return self._r.add(self._op, spec, inputs, f"{self._name}_{suffix}")

    def number(self, suffix: str, value: float) -> Value:
        """Add a float32 constant without axes."""
        return self._r.const(np.array(value, np.float32), f"{self._name}_{suffix}")

    def finish(self, spec: OpDef, *inputs: Value) -> None:
        """Let the replaced op itself do the last step."""
        self._r.update(self._op, spec, list(inputs))
