"""report/calls.json of a bundle: what its C was asked to compute, for a search of
better ways.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from edgec.emit.sources import TargetSources
from edgec.schedule.cores import Core
from edgec.schedule.records import record, signature
from edgec.schedule.variant import legal

CALLS_FILE = "report/calls.json"


@dataclass(frozen=True)
class AskedCall:
    """A call that can be computed in several ways. functions: of the segments, that
    compute one like it.
    """

    signature: str
    functions: tuple[str, ...]
    call: dict[str, Any]


@dataclass(frozen=True)
class CallsFile:
    """By target, and core of it, the preferred first."""

    targets: dict[str, dict[str, tuple[AskedCall, ...]]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """As the bundle has it."""
        return (json.dumps(asdict(self), separators=(",", ":")) + "\n").encode()


def calls_file(sources: Mapping[str, TargetSources]) -> CallsFile:
    """Of a model's C, by target; targets without a choice are left out."""
    targets = {
        t: {core.name: found for core in made.cores if (found := _calls(made, core))}
        for t, made in sources.items()
    }
    return CallsFile({t: cores for t, cores in targets.items() if cores})


def _calls(made: TargetSources, core: Core) -> tuple[AskedCall, ...]:
    found: dict[str, AskedCall] = {}
    for segment, source in made.cores[core].items():
        for function, call in source.asked:
            if len(legal(call, core)) > 1:
                key = signature(call)
                at = f"{segment}.{function}"
                known = found.get(key, AskedCall(key, (), {}))
                found[key] = AskedCall(
                    key, (*known.functions, at), known.call or dict(record(call))
                )
    return tuple(found.values())
