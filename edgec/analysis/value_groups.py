"""Groups of values, joined two at a time."""

from __future__ import annotations

from edgec.ir import Value


class ValueGroups:
    """Disjoint sets of values (Tarjan 1975); a value alone is a group."""

    def __init__(self) -> None:
        self._parent: dict[Value, Value] = {}

    def find(self, v: Value) -> Value:
        """Return the representative of the group of `v`."""
        parent = self._parent
        while parent.get(v, v) is not v:
            # Path halving keeps later searches short.
            parent[v] = parent.get(parent[v], parent[v])
            v = parent[v]
        return v

    def join(self, a: Value, b: Value) -> None:
        """Merge the groups of two values; the representative of `a` stays."""
        root = self.find(a)
        merged = self.find(b)
        self._parent[merged] = root
