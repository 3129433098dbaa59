"""Writes the facts of `edgec inspect` for a terminal.

The page has a headline, then a section for each question of a person who was given the
file: what it does, where it runs, how accurate it is, how large it is, whose it is.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from edgec_devices.intervals import EDGETPU_ERROR, estimate_text

from edgec.errors import shell_word
from edgec.inspecting.facts import (
    InspectedMemory,
    InspectedNetwork,
    InspectedPart,
    InspectedSegment,
    InspectedSignature,
    InspectedTensor,
    Inspection,
)
from edgec.report.checks import accuracy, checks
from edgec.report.explain.text import PLACES
from edgec.report.inspect.compiled_text import blocks_of, headline_of
from edgec.report.inspect.sections import Row, folded, named, section
from edgec.report.legend import legend
from edgec.report.tables import WIDTH, table
from edgec.report.wording import count, percent, plain, shortened, size

SEGMENT_HEAD = (
    "segment",
    "place",
    "ops",
    "MACs",
    "of all",
    "arena",
    "constants",
    "est. ms",
)
SEGMENT_TERMS = ("segment", "MACs", "arena", "est.")
ACCURACY_TERMS = ("SQNR", "cosine", "the reference")
PART_HEAD = ("part", "size", "of all", "files", "what it is")
MEMORY_HEAD = ("code for", "in all", "code", "constants", "arena", "tensors")
MAX_LABELS = 4
"""Names of classes that the page shows."""
MAX_KINDS = 8
"""Kinds of operations that the page shows."""
LONGEST_NAME = 60
"""Characters of a tensor's name."""


def to_text(inspection: Inspection) -> str:
    """Return the page of text."""
    blocks = [headline(inspection), intro(inspection)]
    for network in inspection.networks:
        if inspection.cascade:
            blocks.append(f"== {network.name}: {network.role} ==")
        # A network that is like another one was shown there.
        if not network.like:
            blocks += _network(network)
            for segment in network.segments:
                if segment.compiled is not None:
                    blocks.append(f"-- {headline_of(segment.compiled)} --")
                    blocks += blocks_of(segment.compiled)
    blocks.append(legend(terms(inspection)))
    blocks.append(section("How large it is", _sizes(inspection)))
    blocks.append(section("Licences", named(licenses(inspection))))
    blocks.append(section("Who signed it", folded(signed(inspection.signature))))
    blocks.append(section("What made it", named(versions(inspection))))
    blocks.append(section("What to do with it", named(commands(inspection))))
    return "\n\n".join(filter(None, blocks)) + "\n"


def headline(inspection: Inspection) -> str:
    """Return the line with the file, its content, its target and its size."""
    kind = "a cascade of networks" if inspection.cascade else "a network"
    return plain(
        f"{inspection.path}: {inspection.name}, {kind} for {inspection.target}, "
        f"{size(inspection.bytes)}"
    )


def intro(inspection: Inspection) -> str:
    """Return what the target and the kind of bundle mean, in a paragraph."""
    # The board's own name has no Edge TPU: it is a part that a person adds.
    where = inspection.board
    if inspection.for_host:
        # "This machine" was the one with the compiler.
        code = {row.target for network in inspection.networks for row in network.memory}
        where = f"machines like the one that compiled it ({', '.join(sorted(code))})"
    if inspection.target.endswith("+coral"):
        where += " with a Coral Edge TPU"
    text = f"An edgec bundle: all that a device needs to run it, for {where}."
    if inspection.cascade:
        rules = inspection.cascade_rules
        text += (
            f" Its {len(inspection.networks)} networks run one after another, for at most "
            f"{rules['objects']} object{'s' if rules['objects'] != 1 else ''} at a time; "
        )
        if rules["every"]:
            text += f"the first one looks again after {rules['every']} frames."
        else:
            text += "the first one looks again where an object is lost."
    return textwrap.fill(plain(text), WIDTH)


def _network(network: InspectedNetwork) -> Iterator[str]:
    """Yield the sections about a network."""
    yield section("What it does", named(does(network)))
    yield section("Where it runs", _runs(network))
    yield section("How accurate it is", [*accuracy_lines(network)])


def terms(inspection: Inspection) -> tuple[str, ...]:
    """Return the terms that the sections about networks use."""
    checked = any(network.checks is not None for network in inspection.networks)
    return (*SEGMENT_TERMS, *(ACCURACY_TERMS if checked else ()))


def does(network: InspectedNetwork) -> Iterator[Row]:
    """Yield the task, and a row for each input, output and state."""
    # What a person calls the network for comes first.
    yield "task", task_text(network.task)
    if network.labels is not None:
        yield "classes", labels_text(network.labels)
    for tensor in network.inputs:
        yield "input", tensor_text(tensor)
        if tensor.photo is not None:
            yield "", f"a photo becomes it by {tensor.photo}; docs/preprocessing.md"
    for tensor in network.outputs:
        yield "output", tensor_text(tensor)
    for state in network.state:
        name = shortened(plain(state.input), LONGEST_NAME)
        begins = "zeros" if state.begins == "zeros" else "values of the model"
        yield (
            "state",
            f"{name}, {size(state.bytes)}: kept from one call to the next, "
            f"begins as {begins}",
        )


def task_text(task: Mapping[str, Any] | None) -> str:
    """Return a task and its parameters in one line."""
    if task is None:
        return (
            "not stated: outputs are arrays (compile --task, or --labels for a "
            "classifier, says what they mean)"
        )
    rest = []
    for key, value in task.items():
        # Defaults that say "nothing" are no news for a reader.
        if key in ("task", "schema") or value in (None, "", [], ()):
            continue
        rest.append(f"{key} = {_value(value)}")
    return "; ".join([str(task["task"]), *rest])


def _value(value: object) -> str:
    """Return a parameter of a task, which may be a long list, in few characters."""
    if isinstance(value, (list, tuple)) and len(value) > MAX_LABELS:
        return f"({len(value)} values)"
    if isinstance(value, (list, tuple)):
        return " ".join(map(_value, value))
    # Tables, such as sizes of anchors, are for programs: --json has them all.
    if isinstance(value, Mapping):
        return f"by {' and '.join(value)}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return shortened(plain(str(value)), LONGEST_NAME)


def labels_text(labels: Sequence[str]) -> str:
    """Return how many classes there are, and the first of them."""
    shown = ", ".join(plain(label) for label in labels[:MAX_LABELS])
    more = ", …" if len(labels) > MAX_LABELS else ""
    return f"{len(labels)}: {shown}{more}"


def tensor_text(tensor: InspectedTensor) -> str:
    """Return the name, type and shape of a tensor, and what its integers stand for."""
    # Names come from the model's file, and some have hundreds of characters.
    name = shortened(plain(tensor.name), LONGEST_NAME)
    shape = " x ".join(map(str, tensor.shape)) or "one number"
    text = f"{name}: {tensor.dtype}, {shape}"
    if len(tensor.scale) == 1:
        text += f", real = {tensor.scale[0]:.6g} * (q - {tensor.zero_point[0]})"
    # Scales of channels are for programs: --json has them all.
    elif tensor.scale:
        text += f", with a scale for each of {len(tensor.scale)} channels"
    return text


def _runs(network: InspectedNetwork) -> Iterator[str]:
    """Yield the table of segments, and the operations by kind."""
    yield table(SEGMENT_HEAD, segment_rows(network.segments), "llrrrrrr")
    for note in run_notes(network):
        yield textwrap.fill(note, WIDTH, break_on_hyphens=False)


def segment_rows(segments: Sequence[InspectedSegment]) -> list[tuple[str, ...]]:
    """Return the rows of the table of segments."""
    # A model without multiply-accumulates has shares too, of 0 %.
    total = max(1, sum(segment.macs for segment in segments))
    rows: list[tuple[str, ...]] = []
    for segment in segments:
        place = PLACES[segment.place]
        if segment.form:
            place += f", {segment.form}"
        rows.append(
            (
                segment.name,
                place,
                "-" if segment.ops is None else str(segment.ops),
                count(segment.macs),
                percent(segment.macs / total),
                size(segment.arena),
                size(segment.constants),
                "-"
                if segment.est_ms is None
                else estimate_text(segment.est_ms, EDGETPU_ERROR),
            )
        )
    return rows


def run_notes(network: InspectedNetwork) -> Iterator[str]:
    """Yield sentences about the operations and the threads."""
    # Most networks have a few kinds, which say much about their cost.
    if network.kinds:
        kinds = [f"{n} x {kind}" for kind, n in network.kinds.items()]
        more = ", …" if len(kinds) > MAX_KINDS else ""
        yield f"operations: {', '.join(kinds[:MAX_KINDS])}{more}"
    if any(segment.form == "to be compiled" for segment in network.segments):
        yield (
            "segments that are to be compiled run on the Edge TPU after edgetpu_compiler "
            "has made them ready (docs/edgetpu-compiler.md); until then the CPU runs "
            "them, with the same results"
        )
    if network.threads > 1:
        yield f"up to {network.threads} threads of the CPU share the work"


def accuracy_lines(network: InspectedNetwork) -> Iterator[str]:
    """Yield how the compile quantized and checked the network."""
    if network.recipe:
        candidate = f", which kept {network.kept}" if network.kept else ""
        yield f"quantized to int8 by the recipe {plain(network.recipe)}{candidate}"
    if network.checks is None:
        yield "the bundle does not say what was checked"
        return
    # Indented lines belong to the line above them.
    for line in (*accuracy(network.checks), *checks(network.checks)):
        yield plain(line) if not line.startswith(" ") else f"  {plain(line)}"


def _sizes(inspection: Inspection) -> Iterator[str]:
    """Yield the tables of the file's parts and of the memory."""
    yield table(PART_HEAD, part_rows(inspection.parts, inspection.bytes), "lrrrl")
    for network in inspection.networks:
        if network.memory and not network.like:
            of = f" of {network.name}" if inspection.cascade else ""
            yield ""
            yield f"memory{of} while it runs, without the system's libraries:"
            yield table(MEMORY_HEAD, memory_rows(network.memory), "lrrrrr")
    if inspection.detached:
        yield ""
        yield textwrap.fill(detached_text(inspection.detached), WIDTH)


def part_rows(parts: Sequence[InspectedPart], whole: int) -> list[tuple[str, ...]]:
    """Return the rows of the table of parts; whole: bytes of the file."""
    rows: list[tuple[str, ...]] = []
    for part in parts:
        share = percent(part.bytes / max(1, whole))
        files = str(part.files) if part.files else "-"
        rows.append((part.name, size(part.bytes), share, files, part.about))
    return rows


def memory_rows(memory: Sequence[InspectedMemory]) -> list[tuple[str, ...]]:
    """Return the rows of the table of memory."""
    rows: list[tuple[str, ...]] = []
    for row in memory:
        sizes = (row.all, row.code, row.constants, row.arena, row.tensors)
        rows.append((row.target, *map(size, sizes)))
    return rows


def detached_text(detached: Sequence[str]) -> str:
    """Return which code is not in the file."""
    return (
        f"not in the file: {', '.join(detached)}; the machine that compiled it keeps them "
        "in its cache, to try the model there"
    )


def licenses(inspection: Inspection) -> Iterator[Row]:
    """Yield the licence of each network, and that of the code around it."""
    for network in inspection.networks:
        if network.like:
            continue
        if network.license:
            text = f"{network.license} ({network.license_source})"
        else:
            text = "not known to edgec: ask who made the model"
        yield (plain(network.name) if inspection.cascade else "model"), plain(text)
    yield "code", "Apache-2.0: edgec's kernels, in src/ and compiled in lib/ and bin/"


def signed(signature: InspectedSignature | None) -> str:
    """Return in a sentence who signed a bundle, and whether that holds."""
    if signature is None:
        return (
            "nobody: a device that trusts a key refuses it (edgec sign; "
            "docs/packages.md)"
        )
    who = (
        f"signed with the key {signature.fingerprint}, for the application "
        f'"{signature.app}", counter {signature.counter}'
    )
    # The key is in the file, so a valid signature alone says little: whose key is it?
    if not signature.valid:
        return plain(
            f"NOT VALID: {who}, but the file was changed after that: do not use it"
        )
    return plain(f"{who}: valid; {_whose(signature)}")


def _whose(signature: InspectedSignature) -> str:
    """Return whether the signer's key is one that is known here."""
    if signature.trusted is not None:
        name = f" ({signature.trusted})" if signature.trusted else ""
        return f"the key is known here{name}"
    if signature.compared:
        return "the key is NOT the one that is known here"
    return "whose key it is, is not known here: --key FILE.pub compares it with one"


def versions(inspection: Inspection) -> Iterator[Row]:
    """Yield the versions of the programs that made a bundle."""
    yield "edgec", f"{inspection.edgec}, format {inspection.schema} of the bundle"
    # The networks of a cascade were made together, by the same programs.
    tools = dict[str, str]()
    for network in inspection.networks:
        tools |= network.toolchain
    for target, version in tools.items():
        yield plain(target), plain(version)
    yield "sha256", f"{inspection.sha256} of the manifest, which has those of all files"


def commands(inspection: Inspection) -> Iterator[Row]:
    """Yield commands that take the bundle."""
    file = plain(shell_word(inspection.path))
    # A person who copies a command shall not have to correct it.
    photo = any(t.photo for network in inspection.networks for t in network.inputs)
    input_file = "photo.jpg" if photo else "inputs.npz"
    yield "run", f"edgec run {file} --input {input_file}"
    on = "local:" if inspection.for_host else "ssh://pi@host"
    yield "measure", f"edgec bench {file} --on {on}"
    yield "install", f"edgec flash {file} --on {on}"
    yield "take apart", f"edgec export {file} --c folder/"
