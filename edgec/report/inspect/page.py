"""Renders the facts of `edgec inspect --html` as one page that opens from a disk.

Its form is inspect.html.
"""

from __future__ import annotations

from typing import Any

from edgec.inspecting.facts import InspectedNetwork, Inspection
from edgec.report.inspect.compiled_page import file_values
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


def page(inspection: Inspection) -> str:
    """Return the page of a bundle."""
    return rendered(
        "inspect/inspect.html",
        title=plain(f"{inspection.name} for {inspection.target}"),
        summary=intro(inspection).replace("\n", " "),
        warning=_warning(inspection),
        tiles=_tiles(inspection),
        cascade=inspection.cascade,
        networks=[_network(network) for network in inspection.networks],
        terms=explained(terms(inspection)),
        parts_of_file=[PART_HEAD, *part_rows(inspection.parts, inspection.bytes)],
        memory_head=MEMORY_HEAD,
        detached=detached_text(inspection.detached) if inspection.detached else "",
        licenses=[*licenses(inspection)],
        signed=signed(inspection.signature),
        versions=[*versions(inspection)],
        commands=[*commands(inspection)],
        data=inspection.to_json(),
    )


def _warning(inspection: Inspection) -> str:
    """Return the fact that a person must not overlook; "" without one."""
    # An unsigned bundle is usual; one that was changed after its signature is not.
    if inspection.signature is not None and not inspection.signature.valid:
        return signed(inspection.signature)
    return ""


def _tiles(inspection: Inspection) -> list[tuple[str, str]]:
    """Return the few figures that say most."""
    # In the order of the sections below them.
    networks = inspection.networks
    tiles = [("file", size(inspection.bytes))]
    if inspection.cascade:
        tiles.append(("networks", str(len(networks))))
    tiles.append(("MACs", count(sum(network.macs for network in networks))))
    share = _edgetpu_share(inspection)
    if share:
        tiles.append(("on the Edge TPU", percent(share)))
    # The first target is the board's own.
    with_memory = [
        network for network in networks if network.memory and not network.like
    ]
    if with_memory:
        tiles.append(
            ("memory", size(sum(network.memory[0].all for network in with_memory)))
        )
    tiles.append(("signature", _seal(inspection)))
    return tiles


def _edgetpu_share(inspection: Inspection) -> float:
    """Return the share of the MACs on the Edge TPU."""
    segments = [s for network in inspection.networks for s in network.segments]
    on_edgetpu = sum(s.macs for s in segments if s.place == "edgetpu")
    # A network without multiply-accumulates has a share too, of 0.
    return on_edgetpu / max(1, sum(s.macs for s in segments))


def _seal(inspection: Inspection) -> str:
    """Return one word about the signature."""
    if inspection.signature is None:
        return "none"
    return "valid" if inspection.signature.valid else "not valid"


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
        "compiled": [
            (plain(segment.compiled.path), file_values(segment.compiled))
            for segment in network.segments
            if segment.compiled is not None
        ],
        "accuracy": [*accuracy_lines(network)],
        "memory": memory_rows(network.memory),
    }
