"""A stand-in for edgetpu_compiler: a test double that behaves as the real one is known
to, by rules that a test sets.

It gives each operator a yes or no by the rules, maps the first set of operators that
TFLite would give to a delegate (all sets with -a), writes a file in which every mapped
set is one custom op and every other operator keeps its names, and prints in the layout
of the version that it plays. It compiles nothing for real, but its files have the real
format: libedgetpu runs them on an emulated stick that knows their source.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import flatbuffers
from ai_edge_litert import schema_py_generated as schema

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.toolchain.edgetpu_log_text import MAPPED, V16, log_file, screen, version_line
from tests.toolchain.edgetpu_package import (
    PackageFacts,
    PackageTensor,
    operator_data,
)

ONE_SUBGRAPH = "More than one subgraph is not supported"
CALLS = "calls.jsonl"
_NAMES = {v: k for k, v in vars(schema.BuiltinOperator).items() if isinstance(v, int)}
_TYPES = {v: k for k, v in vars(schema.TensorType).items() if isinstance(v, int)}
_FLAGS = {
    "-s": 0,
    "--show_operations": 0,
    "-a": 0,
    "--enable_multiple_subgraphs": 0,
    "-d": 0,
    "--search_delegate": 0,
    "-o": 1,
    "--out_dir": 1,
    "-m": 1,
    "--min_runtime_version": 1,
    "-n": 1,
    "--num_segments": 1,
    "-t": 1,
    "--timeout_sec": 1,
    "-k": 1,
    "--delegate_search_step": 1,
    "-i": 1,
    "--intermediate_tensors": 1,
}
_LONG = {
    "-s": "--show_operations",
    "-a": "--enable_multiple_subgraphs",
    "-o": "--out_dir",
}


@dataclass(frozen=True)
class Rules:
    """What it does.

    refuse: a status by the name of the tensor that the operator writes, or by opcode.
    newest: the newest version of an opcode that it knows. breaks_on: it dies with
    `failure` on any file in which one of these tensors is written; breaks_above: or on
    one with more operators; unless it has failed `failures` times. together: whether it
    compiles several files at once. hangs: seconds to wait (with a child). says: prints
    this and writes nothing. writes: what every compiled file is replaced by
    (hexadecimal). lies: it says that all is mapped.
    """

    version: str = V16
    refuse: dict[str, str] = field(default_factory=dict)
    newest: dict[str, int] = field(default_factory=dict)
    breaks_on: tuple[str, ...] = ()
    breaks_above: int = 10**9
    failure: str = "\nInternal compiler error. Aborting! \n"
    failures: int = 10**9
    together: bool = True
    hangs: float = 0
    says: str | None = None
    writes: str | None = None
    lies: bool = False


class StandInEdgetpuCompiler:
    """An executable called edgetpu_compiler in a folder, which a test may put on a
    PATH.
    """

    def __init__(self, folder: Path, rules: Rules | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.program = folder / "edgetpu_compiler"
        self.program.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{__file__}" "$0.json" "$@"\n'
        )
        self.program.chmod(0o755)
        self.set(rules or Rules())

    def set(self, rules: Rules) -> None:
        """From the next call on."""
        (self.folder / "edgetpu_compiler.json").write_text(json.dumps(asdict(rules)))

    def calls(self) -> list[list[str]]:
        """The models of each call so far."""
        path = self.folder / CALLS
        if path.exists():
            return [json.loads(line) for line in path.read_text().splitlines()]
        return []


def stand_in(arguments: list[str], rules: Rules, calls: int = 0) -> tuple[str, int]:
    """What is printed, and the exit code. calls: how often it ran before."""
    if "-v" in arguments or "--version" in arguments:
        return version_line(rules.version), 0
    flags, models = parse(arguments)
    if rules.hangs:
        time.sleep(rules.hangs)
    if rules.says is not None:
        return rules.says, 1
    out = Path(flags.get("--out_dir", "."))
    records = []
    loaded = [schema.ModelT.InitFromPackedBuf(m.read_bytes()) for m in models]
    for path, model in zip(models, loaded, strict=True):
        failure = _failure(model, rules, calls, len(models), path)
        if failure is not None:
            return version_line(rules.version) + failure, 1
    together = hashlib.sha256(b"".join(m.read_bytes() for m in models))
    token = int.from_bytes(together.digest()[:8], "little")
    for path, model in zip(models, loaded, strict=True):
        size = path.stat().st_size
        every = "--enable_multiple_subgraphs" in flags
        rows, sets = _compile(model, rules, every, token)
        data = _pack(model) if rules.writes is None else bytes.fromhex(rules.writes)
        (out / f"{path.stem}_edgetpu.tflite").write_bytes(data)
        records.append(_record(path, rows, sets, size, len(data), rules))
        (out / f"{path.stem}_edgetpu.log").write_text(log_file(records[-1]))
    return screen(records, "--show_operations" in flags), 0


def parse(arguments: list[str]) -> tuple[dict[str, str], list[Path]]:
    """Flags by their long names, and the models; a flag that the program does not have
    is an error.
    """
    flags: dict[str, str] = {}
    models: list[Path] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if word.startswith("-"):
            count = _FLAGS[word]
            flags[_LONG.get(word, word)] = rest.pop(0) if count else ""
        else:
            models.append(Path(word))
    assert models, "no model"
    return flags, models


def _failure(
    model: Any, rules: Rules, calls: int, models: int, path: Path
) -> str | None:
    ops = model.subgraphs[0].operators
    for op in ops:
        name = _opcode(model, op)
        version = int(model.operatorCodes[op.opcodeIndex].version)
        if version > rules.newest.get(name, version):
            return (
                f"ERROR: Didn't find op for builtin opcode '{name}' version "
                f"'{version}'. An older version of this "
                "builtin might be supported.\n\nERROR: "
                f"Registration failed.\n\nInvalid model: {path}\n"
                "Model could not be parsed\n"
            )
    bad = (
        any(_writes(model, op) in rules.breaks_on for op in ops)
        or len(ops) > rules.breaks_above
    )
    if (bad and calls < rules.failures) or (models > 1 and not rules.together):
        return rules.failure
    return None


def _record(
    path: Path, rows: list[dict[str, Any]], sets: int, size: int, out: int, rules: Rules
) -> dict[str, Any]:
    if rules.lies:
        rows = [r | {"status": MAPPED} for r in rows]
    total = sum(r["count"] for r in rows)
    on_tpu = sum(r["count"] for r in rows if r["status"] == MAPPED)
    split = {} if on_tpu == total else {"n_tpu": on_tpu, "n_cpu": total - on_tpu}
    return {
        "compiler_version": rules.version,
        "compile_ms": 12,
        "input": str(path),
        "input_size": f"{size / 1024:.2f}KiB",
        "output": f"{path.stem}_edgetpu.tflite",
        "output_size": f"{out / 1024:.2f}KiB",
        "onchip_used": "10.25KiB",
        "onchip_remaining": "7.50MiB",
        "offchip_streamed": "0.00B",
        "n_subgraphs": sets,
        "n_ops": total,
        "rows": rows,
    } | split


def _compile(
    model: Any, rules: Rules, every: bool, token: int
) -> tuple[list[dict[str, Any]], int]:
    """Replace the mapped sets in the model; the rows of the table, and how many sets
    were mapped.
    """
    graph = model.subgraphs[0]
    source = hashlib.sha256(_pack(model)).digest()
    counts: dict[tuple[str, str], int] = {}
    result: list[Any] = []
    mapped = 0
    for wanted, ops in _sets(model, rules):
        take = wanted and (every or mapped == 0)
        mapped += take
        for op in ops:
            status = MAPPED if take else _refusal(model, op, rules) or ONE_SUBGRAPH
            counts[_opcode(model, op), status] = (
                counts.get((_opcode(model, op), status), 0) + 1
            )
        if take:
            operator = _custom(model, ops)
            identity = source + mapped.to_bytes(4, "little")
            facts = _facts(model, ops, operator, identity, token)
            operator.customOptions = list(operator_data(facts))
            result.append(operator)
        else:
            result += ops
    graph.operators = result
    for code in model.operatorCodes:
        code.version = 1
    return [
        {"op": op, "count": n, "status": status} for (op, status), n in counts.items()
    ], mapped


def _sets(model: Any, rules: Rules) -> list[tuple[bool, list[Any]]]:
    """TFLite's partition: grow a set of one kind with every operator whose inputs are
    ready, then start the next.
    """
    pending = list(model.subgraphs[0].operators)
    made: set[int] = set()
    late = {int(i) for op in pending for i in op.outputs}
    sets: list[tuple[bool, list[Any]]] = []
    while pending:
        kind: bool | None = None
        taken: list[Any] = []
        for op in list(pending):
            ready = all(int(i) in made or int(i) not in late for i in op.inputs)
            wanted = _refusal(model, op, rules) is None
            if ready and kind in (None, wanted):
                kind = wanted
                taken.append(op)
                pending.remove(op)
                made |= {int(i) for i in op.outputs}
        assert kind is not None
        sets.append((kind, taken))
    return sets


def _refusal(model: Any, op: Any, rules: Rules) -> str | None:
    return rules.refuse.get(_writes(model, op)) or rules.refuse.get(_opcode(model, op))


def _custom(model: Any, ops: list[Any]) -> Any:
    """One operator in place of `ops`: reads what they read from elsewhere, writes what
    is read elsewhere.
    """
    graph = model.subgraphs[0]
    own = {int(i) for op in ops for i in op.outputs}
    inside = {id(op) for op in ops}
    wanted = {int(i) for i in graph.outputs}
    wanted |= {
        int(i) for op in graph.operators if id(op) not in inside for i in op.inputs
    }
    code = schema.OperatorCodeT()
    code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.builtinCode = code.deprecatedBuiltinCode
    code.customCode = "edgetpu-custom-op"
    model.operatorCodes.append(code)
    custom = schema.OperatorT()
    custom.opcodeIndex = len(model.operatorCodes) - 1
    read = dict.fromkeys(
        int(i) for op in ops for i in op.inputs if i >= 0 and int(i) not in own
    )
    custom.inputs = [i for i in read if not _constant(model, i)]
    custom.outputs = [int(i) for op in ops for i in op.outputs if int(i) in wanted]
    return custom


def _facts(
    model: Any, ops: list[Any], operator: Any, identity: bytes, token: int
) -> PackageFacts:
    """What the package of `operator`, which is in place of `ops`, is made of."""
    tensors = model.subgraphs[0].tensors
    read = dict.fromkeys(int(i) for op in ops for i in op.inputs if i >= 0)
    constants = [_data(model, i) for i in read if _constant(model, i)]
    return PackageFacts(
        identity=identity,
        inputs=[_tensor(tensors[i]) for i in operator.inputs],
        outputs=[_tensor(tensors[i]) for i in operator.outputs],
        parameters=b"".join(constants),
        token=token,
        compiler="stand-in",
    )


def _tensor(tensor: Any) -> PackageTensor:
    quantization = tensor.quantization
    has = quantization is not None and quantization.scale is not None
    name = tensor.name
    return PackageTensor(
        name=name.decode() if isinstance(name, bytes) else str(name),
        shape=tuple(int(n) for n in tensor.shape),
        dtype=_TYPES[tensor.type].lower(),
        scale=float(quantization.scale[0]) if has else 0.0,
        zero_point=int(quantization.zeroPoint[0]) if has else 0,
    )


def _constant(model: Any, i: int) -> bool:
    return len(_data(model, i)) > 0


def _data(model: Any, i: int) -> bytes:
    data = model.buffers[model.subgraphs[0].tensors[i].buffer].data
    return b"" if data is None else bytes(data)


def _opcode(model: Any, op: Any) -> str:
    code = model.operatorCodes[op.opcodeIndex]
    return str(_NAMES[max(int(code.builtinCode), int(code.deprecatedBuiltinCode))])


def _writes(model: Any, op: Any) -> str:
    name = model.subgraphs[0].tensors[op.outputs[0]].name
    return name.decode() if isinstance(name, bytes) else str(name)


def _pack(model: Any) -> bytes:
    builder = flatbuffers.Builder(1 << 16)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def main() -> None:
    """As a program: its rules, then the arguments of edgetpu_compiler."""
    rules_path = Path(sys.argv[1])
    rules = Rules(**json.loads(rules_path.read_text()))
    log = rules_path.parent / CALLS
    calls = len(log.read_text().splitlines()) if log.exists() else 0
    if "-v" not in sys.argv:
        with log.open("a") as f:
            f.write(json.dumps([p.stem for p in parse(sys.argv[2:])[1]]) + "\n")
    text, code = stand_in(sys.argv[2:], rules, calls)
    sys.stdout.write(text)
    sys.exit(code)


if __name__ == "__main__":
    main()
