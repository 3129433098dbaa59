"""report/calls.json of a bundle: the kernel calls that have several schedules.

`edgec tune` searches for better ones among them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from edgec.emit.sources import TargetSources
from edgec.schedule.cores import Core
from edgec.schedule.records import record, signature
from edgec.schedule.variant import legal

CALLS_FILE = "report/calls.json"
"""The file's name in a bundle."""


@dataclass(frozen=True)
class AskedCall:
    """A call that can be computed in several ways.

    Attributes:
        signature: equal for calls that need the same of a core
        functions: the functions with such a call, as segment.function
        call: one of the calls as a record
    """

    signature: str
    functions: tuple[str, ...]
    call: dict[str, Any]


@dataclass(frozen=True)
class CallsFile:
    """The content of the file.

    Attributes:
        targets: calls by target and core of the target, the preferred core first
    """

    targets: dict[str, dict[str, tuple[AskedCall, ...]]] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the bytes of the file."""
        return (json.dumps(asdict(self), separators=(",", ":")) + "\n").encode()


def calls_file(sources: Mapping[str, TargetSources]) -> CallsFile:
    """Return the file of a model's C by target.

    Cores and targets without a choice are left out.
    """
    targets: dict[str, dict[str, tuple[AskedCall, ...]]] = {}
    for target, target_sources in sources.items():
        # Each core has its own variants, so a call can be worth a search on one only.
        cores: dict[str, tuple[AskedCall, ...]] = {}
        for core in target_sources.cores:
            calls = _calls(target_sources, core)
            if calls:
                cores[core.name] = calls
        if cores:
            targets[target] = cores
    return CallsFile(targets)


def _calls(sources: TargetSources, core: Core) -> tuple[AskedCall, ...]:
    """Return the calls of a core's code that have several schedules."""
    calls: dict[str, AskedCall] = {}
    for segment, source in sources.cores[core].items():
        for function, call in source.plain_calls:
            # A call with one schedule leaves nothing to search.
            schedules = legal(call, core)
            if len(schedules) <= 1:
                continue

            key = signature(call)
            # Equal calls are tuned once, with the constants of the first.
            if key not in calls:
                calls[key] = AskedCall(key, (), dict(record(call)))

            known = calls[key]
            functions = (*known.functions, f"{segment}.{function}")
            calls[key] = replace(known, functions=functions)
    return tuple(calls.values())
