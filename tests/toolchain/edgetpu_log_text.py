"""Writes logs of edgetpu_compiler from their figures, in the layouts that its versions
really print.

A record has the keys of shared/edgetpu/logs.json. The layouts are those of published
logs: the .log file of every version; the output of 1.0 and 2.0 (memory "available",
then "used"); of 2.1 to 15 ("used", then "remaining"); of 16 (with its timer).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]
MAPPED = "Mapped to Edge TPU"
V16 = "16.0.384591198"
V15 = "15.0.340273435"
V2_1 = "2.1.302470888"
V1 = "1.0.249710469"

_PARTLY = (
    "Model successfully compiled but not all operations are supported by the Edge TPU. "
    "A percentage of the model will "
    "instead run on the CPU, which is slower. If possible, "
    "consider updating your model to use only operations "
    "supported by the Edge TPU. For details, visit g.co/coral/model-reqs."
)


def log_file(r: Record) -> str:
    """The _edgetpu.log beside the compiled file."""
    head = (
        f"{version_line(r['compiler_version'])}Input: {r['input']}\nOutput: "
        f"{r['output']}\n"
    )
    return f"{head}\n{table(r['rows'])}"


def screen(records: Sequence[Record], operations: bool = True) -> str:
    """What is printed for models that were compiled together; `operations`: with -s."""
    first = records[0]
    version = first["compiler_version"]
    text = version_line(version)
    if _major(version) >= 16:
        text += "Started a compilation timeout timer of 180 seconds.\n"
    text += (
        f"\nModel{'s' * (len(records) > 1)} compiled successfully in "
        f"{first['compile_ms']} ms.\n"
    )
    text += "".join(f"\n{_block(r, operations)}" for r in records)
    if _major(version) >= 16:
        text += (
            "Compilation child process completed within timeout "
            "period.\nCompilation succeeded! \n"
        )
    return text


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The operator table."""
    lines = "".join(f"{r['op']:<31}{r['count']:<11}{r['status']}\n" for r in rows)
    return f"Operator                       Count      Status\n\n{lines}"


def fragment(r: Record) -> str:
    """What people quote of a log: whatever of it is known."""
    text = version_line(r["compiler_version"]) if r.get("compiler_version") else ""
    return text + _memory(r) + _split(r) + table(r["rows"])


def version_line(version: str) -> str:
    """The first line."""
    return f"Edge TPU Compiler version {version}\n"


def _block(r: Record, operations: bool) -> str:
    text = f"Input model: {r['input']}\nInput size: {r['input_size']}\n"
    text += (
        f"Output model: {r['output']}\nOutput size: {r['output_size']}\n{_memory(r)}"
    )
    text += (
        f"Number of Edge TPU subgraphs: {r['n_subgraphs']}\nTotal number of "
        f"operations: {r['n_ops']}\n"
    )
    text += f"Operation log: {r['output'].removesuffix('.tflite')}.log\n"
    if "n_tpu" in r:
        text += f"\n{_PARTLY}\n{_split(r)}"
    return text + (
        f"\n{table(r['rows'])}"
        if operations
        else "See the operation log file for individual operation details.\n"
    )


def _memory(r: Record) -> str:
    if "onchip_used" not in r:
        return ""
    used = f"On-chip memory used for caching model parameters: {r['onchip_used']}\n"
    streamed = (
        "Off-chip memory used for streaming uncached model parameters: "
        f"{r['offchip_streamed']}\n"
    )
    if "onchip_remaining" not in r:
        return used + streamed
    word = "available" if has_available(r["compiler_version"]) else "remaining"
    other = (
        f"On-chip memory {word} for caching model parameters: {r['onchip_remaining']}\n"
    )
    return (other + used if word == "available" else used + other) + streamed


def _split(r: Record) -> str:
    if "n_tpu" not in r:
        return ""
    tpu = f"Number of operations that will run on Edge TPU: {r['n_tpu']}\n"
    return f"{tpu}Number of operations that will run on CPU: {r['n_cpu']}\n"


def has_available(version: str) -> bool:
    """Whether this version prints the memory before it takes its part; later ones print
    what is left.
    """
    return _major(version) == 1 or version.startswith("2.0")


def _major(version: str) -> int:
    return int(version.split(".")[0])
