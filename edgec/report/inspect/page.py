"""Renders the facts of `edgec inspect --html` as one page that opens from a disk.

Its form is inspect.html.
"""

from __future__ import annotations

from typing import Any

from edgec.inspecting.facts import InspectedNetwork, Inspection
from edgec.report.inspect.text import (
    MEMORY_HEAD,
    PART_HEAD,
    SEGMENT_HEAD,
    accuracy_lines,
    commands,
    detached_text,
    does,
    intro,
    licenses,
    memory_rows,
    part_rows,
    run_notes,
    segment_rows,
    signed,
    terms,
    versions,
)
from edgec.report.legend import explained
from edgec.report.markup import rendered
from edgec.report.wording import count, percent, plain, size


def page(found: Inspection) -> str:
    """Return the page of a bundle."""
    return rendered(
        "inspect/inspect.html",
        title=plain(f"{found.name} for {found.target}"),
        summary=intro(found).replace("\n", " "),
        warning=_warning(found),
        tiles=_tiles(found),
        cascade=found.cascade,
        networks=[_network(network) for network in found.networks],
        terms=explained(terms(found)),
        parts_of_file=[PART_HEAD, *part_rows(found.parts, found.bytes)],
        memory_head=MEMORY_HEAD,
        detached=detached_text(found.detached) if found.detached else "",
        licenses=[*licenses(found)],
        signed=signed(found.signature),
        versions=[*versions(found)],
        commands=[*commands(found)],
        data=found.to_json(),
    )


def _warning(found: Inspection) -> str:
    """Return the fact that a person must not overlook; "" without one."""
    # An unsigned bundle is usual; one that was changed after its signature is not.
    if found.signature is not None and not found.signature.valid:
        return signed(found.signature)
    return ""


def _tiles(found: Inspection) -> list[tuple[str, str]]:
    """Return the few figures that say most."""
    # In the order of the sections below them.
    networks = found.networks
    tiles = [("file", size(found.bytes))]
    if found.cascade:
        tiles.append(("networks", str(len(networks))))
    tiles.append(("MACs", count(sum(network.macs for network in networks))))
    share = _edgetpu_share(found)
    if share:
        tiles.append(("on the Edge TPU", percent(share)))
    # The first target is the board's own.
    own = [network for network in networks if network.memory and not network.like]
    if own:
        tiles.append(("memory", size(sum(network.memory[0].all for network in own))))
    tiles.append(("signature", _seal(found)))
    return tiles


def _edgetpu_share(found: Inspection) -> float:
    """Return the share of the MACs on the Edge TPU."""
    segments = [s for network in found.networks for s in network.segments]
    on_edgetpu = sum(s.macs for s in segments if s.place == "edgetpu")
    # A network without multiply-accumulates has a share too, of 0.
    return on_edgetpu / max(1, sum(s.macs for s in segments))


def _seal(found: Inspection) -> str:
    """Return one word about the signature."""
    if found.signature is None:
        return "none"
    return "valid" if found.signature.valid else "not valid"


def _network(network: InspectedNetwork) -> dict[str, Any]:
    """Return the values of the form's part for a network."""
    return {
        "name": plain(network.name),
        "like": network.like,
        "role": plain(network.role),
        "does": [*does(network)],
        "segments": [SEGMENT_HEAD, *segment_rows(network.segments)],
        "places": [segment.place for segment in network.segments],
        "notes": [*run_notes(network)],
        "accuracy": [*accuracy_lines(network)],
        "memory": memory_rows(network.memory),
    }
