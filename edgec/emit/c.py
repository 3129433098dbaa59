"""Graph → C: one file per segment with a function that runs it, and the bytes of the
constants that it reads.

Weights are binary, in the segment's part of the bundle's weights file, whose address
the caller gives. Scalars and tables with a value for each channel are static arrays in
the text: the C compiler computes with them (signs of shifts, masks, how far to unroll),
which is worth 3 % of the instructions of MobileNet v2. There is no other global.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from edgec.emit.entries import entry_functions
from edgec.emit.memory import ArenaPlan, plan_offsets
from edgec.emit.weights import WeightsFile
from edgec.errors import InternalError, UnsupportedError
from edgec.ir import (
    Array,
    CStruct,
    Graph,
    Kernel,
    KernelCall,
    Op,
    Pointer,
    Scratch,
    Share,
    Table,
    Value,
)
from edgec.ir.c_struct import c_types
from edgec.ir.graph import unique
from edgec.ir.verify import lacks_scale
from edgec.ops.opaque import Opaque
from edgec.schedule.complete import complete
from edgec.schedule.cores import PLAIN, Core
from edgec.schedule.fuse import FusedStep
from edgec.schedule.liveness import STACK_BYTES, Lifetime, aligned, lifetimes, tensors
from edgec.schedule.simd import CSRC as CSRC
from edgec.schedule.steps import DEFAULT, apply_variant, schedule
from edgec.schedule.variant import Choose, Rules
from edgec.schedule.views import Places

SMALL_BYTES = 256
TABLE_BYTES = 4096
"""The largest constants that are written as text: of any shape, of one dimension."""

Text = Literal["small", "all", "none"]

CTYPES = {
    "float32": "float",
    "float64": "double",
    "float16": "uint16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "uint8_t",
}


@dataclass(frozen=True)
class CSource:
    """One generated file: its text, the kernel headers that it includes, its memory
    plan.

    functions: what its profile knows, in order: every op that computes something, the
    same on all cores, whatever one fuses. calls: for each op of the graph its position
    among them; None where what it copies is where it should be. within: the same of the
    one in whose time it is, where several are done at once. constants: bytes of its
    read-only arrays. weights: the file that has those of them that are not in the text.
    places: where the values lie. complete: after how many of the functions the values
    that are written as a whole lie there; others never do. asked: the calls of plain
    kernels that it computes, by the name of their function. spans: from where to where
    in the weights file the constants of an op lie, by its position in the graph; of a
    source of its own file with text="none" alone.
    """

    name: str
    text: str
    headers: tuple[str, ...]
    plan: ArenaPlan
    calls: tuple[int | None, ...]
    within: tuple[int | None, ...]
    functions: tuple[str, ...]
    constants: int
    weights: WeightsFile
    places: Places
    complete: Mapping[Value, int]
    asked: tuple[tuple[str, KernelCall], ...]
    spans: Mapping[int, tuple[int, int]]


def segment_source(
    graph: Graph,
    name: str,
    core: Core = PLAIN,
    weights: WeightsFile | None = None,
    text: Text = "small",
    rules: Rules = DEFAULT,
) -> CSource:
    """The C of one segment for a core: edgec_<name>_run, and edgec_<name>_profile with
    a mark before each op (ek_model.h).

    weights: the file that its weights are added to, else one of its own. text: which
    constants are written as text; "all": each is an array of its own, so that a
    sanitizer sees what is read beside it; "none": graphs that differ in nothing else
    have the same text (`constants_again`). rules: what the schedule may do.
    """
    check_types(graph)
    made = schedule(graph, core, rules)
    file = weights if weights is not None else WeightsFile(apart=text == "none")
    writer = Writer(graph, made.places, file, text, core.threads)
    called = {step.at: writer.step(step) for step in made.steps}
    lives = lifetimes(
        [tensors(s.calls) for s in made.steps],
        made.places,
        {*graph.inputs, *graph.outputs},
    )
    plan = plan_offsets(lives + writer.scratches)
    flushed = "avx2" in core.isa and any(
        v.type.dtype == "float32" for op in graph.ops for v in op.outputs
    )
    always = {
        "ek_base.h",
        *(("ek_share.h",) if core.threads > 1 else ()),
        *(("ek_denormals.h",) if flushed else ()),
    }
    headers = sorted({kernel.header for kernel in writer.calls} | always)
    functions = tuple(f"op{i}_{graph.ops[i].kind}" for i in made.ops)
    marks = [called.get(i, ()) for i in made.ops]
    code = text_of(writer, plan, headers, name) + entry_functions(
        name, marks, core.threads, flushed
    )
    numbers = {op: number for number, op in enumerate(made.ops)}
    calls = tuple(numbers.get(i) for i in range(len(graph.ops)))
    done = {i: numbers.get(step.at) for step in made.steps for i in step.ops}
    within = tuple(done.get(i) for i in range(len(graph.ops)))
    asked = tuple(
        (f"op{s.at}_{graph.ops[s.at].kind}", call)
        for s in made.plain_steps
        for call in s.calls
    )
    return CSource(
        name,
        code,
        tuple(headers),
        plan,
        calls,
        within,
        functions,
        writer.constant_bytes,
        writer.weights,
        made.places,
        complete(graph, made),
        asked,
        writer.spans,
    )


def constants_again(
    source: CSource, op: Op, at: int, core: Core, choose: Choose
) -> bytes:
    """What lies in the span of an op, for an op in its place whose constants are others
    of the same shapes.

    source: of text="none", written for the core by rules that fuse nothing.
    """
    calls = tuple(apply_variant(call, core, choose) for call in op.calls())
    writer = Writer(
        Graph(""), source.places, WeightsFile(apart=True), "none", core.threads
    )
    writer.whole("again", calls)
    first, last = source.spans[at]
    data = writer.weights.data
    if len(data) != last - first:
        raise InternalError(
            f"the constants of {op!r} take {len(data)} bytes, not {last - first}"
        )
    return data


def check_kernels(graph: Graph) -> None:
    """Raise UnsupportedError for an op that cannot be written as C: found without
    writing any.
    """
    check_types(graph)
    for op in graph.ops:
        if not isinstance(op.spec, Opaque):  # of models that are only looked at
            try:
                calls = op.calls()
            except ValueError as e:
                raise _no_kernel(op) from e
            for call in calls:
                _check_kernel(call, op)


def check_types(graph: Graph) -> None:
    """Raise UnsupportedError for int8 that stands for no reals, where a kernel wants a
    scale.
    """
    for op in graph.ops:
        if lacks_scale(op):
            raise _no_kernel(op)


def _check_kernel(call: KernelCall, op: Op) -> None:
    if not call.kernel.is_defined:
        raise _no_kernel(op)


def text_of(writer: Writer, plan: ArenaPlan, headers: Sequence[str], name: str) -> str:
    """The whole file but what callers see."""
    enum = "".join(
        f"    {writer.symbols[n]} = {o},\n"
        for n, o in plan.offsets.items()
        if n in writer.symbols
    )
    table = "".join(writer.table)
    return (
        f"/* Segment {name}. Generated by edgec; do not edit. */\n"
        + "".join(f'#include "{h}"\n' for h in headers)
        + (f"\nenum {{ /* offsets in the arena, bytes */\n{enum}}};\n" if enum else "")
        + (
            f"\nenum {{ /* offsets in the weights file, bytes */\n{table}}};\n"
            if table
            else ""
        )
        + "\n"
        + "".join(writer.constants)
        + "".join(writer.bodies)
    )


@dataclass
class Writer:
    """Prints one segment: collects constants, bodies and scratch needs.

    text: which constants are text. constants: those that are. weights: has the others;
    table: their offsets, as lines of an enum. threads: the most that share a call.
    scratches: those in the arena.
    """

    graph: Graph
    places: Places
    weights: WeightsFile
    text: Text = "small"
    threads: int = 1
    constants: list[str] = field(default_factory=list)
    table: list[str] = field(default_factory=list)
    bodies: list[str] = field(default_factory=list)
    calls: set[Kernel] = field(default_factory=set)
    scratches: list[Lifetime] = field(default_factory=list)
    symbols: dict[str, str] = field(default_factory=dict)
    constant_bytes: int = 0
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._index = 0
        self._step = -1
        self._function = ""
        self._parts = 1
        self._stack = 0
        self._known: dict[tuple[str, bytes], str] = {}
        self._names: set[str] = set()
        self._apart: list[Array] = []

    def step(self, step: FusedStep) -> list[str]:
        """One static function, or one for each call where threads share some; the
        statements that call them.
        """
        ops = [self.graph.ops[i] for i in step.ops]
        fn = f"op{step.ops[0]}_{'_'.join(op.kind for op in ops)}"
        self._index = step.ops[0]
        self._function = fn
        self._step += 1
        for call in step.calls:
            _check_kernel(call, ops[0])
        self.calls.update(call.kernel for call in step.calls)
        first = aligned(len(self.weights))
        statements = self._statements(fn, ops, step)
        self.spans[step.ops[0]] = (first, max(first, len(self.weights)))
        return statements

    def _statements(self, fn: str, ops: Sequence[Op], step: FusedStep) -> list[str]:
        source = re.sub(r"[^\w ./:-]", "_", ops[0].source)
        note = f" /* {source} */" if source else ""
        if not step.shared or not any(call.divisible for call in step.calls):
            return [self.whole(fn, step.calls, note)]
        names = [fn, *(f"{fn}_{i}" for i in range(1, len(step.calls)))]
        pairs = zip(names, step.calls, strict=True)
        return [
            self._part(name, c, note) if c.divisible else self.whole(name, (c,), note)
            for name, c in pairs
        ]

    def whole(self, fn: str, calls: Sequence[KernelCall], note: str = "") -> str:
        """A function that one thread computes."""
        body = self._body(calls)
        # restrict: as with a const array, no store changes what was read from the
        # weights
        parameters = (
            "unsigned char *m, const unsigned char *restrict w, "
            "const "
            "void *const *in, void *const *out"
        )
        head = f"EK_OP void {fn}({parameters}) {{{note}\n"
        self.bodies.append(
            f"{head}    (void)m, (void)w, (void)in, (void)out;\n    {body}\n}}\n\n"
        )
        return f"{fn}(m, w, in, out);"

    def alone(self, fn: str, call: KernelCall) -> str:
        """A function for one call of no op; the statement that calls it."""
        self._index = self._index + 1
        self._function = fn
        self._step += 1
        self.calls.add(call.kernel)
        return self.whole(fn, (call,))

    def _part(self, fn: str, call: KernelCall, note: str) -> str:
        """A function that threads share."""
        self._parts = self.threads
        body = self._body([call])
        self._parts = 1
        head = f"EK_OP void {fn}(const void *run, int part, int parts) {{{note}\n"
        self.bodies.append(f"{head}    EK_OF_RUN(run);\n    {body}\n}}\n\n")
        return f"ek_on_threads(threads, {fn}, &run);"

    def _body(self, calls: Sequence[KernelCall]) -> str:
        """The calls, and the stack that their scratch takes."""
        self._stack = 0
        statements = [self._call(call) for call in calls]
        return "\n    ".join(
            [*([f"EK_STACK({self._stack});"] if self._stack else []), *statements]
        )

    def _call(self, call: KernelCall) -> str:
        return f"{call.kernel}({', '.join(self._operand(x) for x in call.operands)});"

    def _operand(self, x: object) -> str:
        """The C expression of an operand, or of a field of one."""
        match x:
            case Pointer():
                return self.ptr(x)
            case Table():
                return self.const(x.array, x.hint)
            case Scratch():
                return self.scratch(x.nbytes)
            case Share():
                return x.alone if self._parts == 1 else x.shared
            case Kernel():
                self.calls.add(x)
                return x.name
            case CStruct():
                return self._struct(x)
            case list() | tuple():
                return "{" + ", ".join(self._operand(v) for v in x) + "}"
        return _literal(x)

    def _struct(self, x: CStruct) -> str:
        """A constant where all is known when the program is linked: code that fills it
        in at each call takes three times the room, and compilers see through both.
        """
        fields = ", ".join(self._fields(x, "."))
        if not self._known_to_linkers(x):
            return f"&(const {x.ctype}){{{fields}}}"
        key = (x.ctype, fields.encode())
        if key not in self._known:
            name = unique(f"p{self._index}", self._names.__contains__)
            self._names.add(name)
            self.constants.append(f"static const {x.ctype} {name} = {{{fields}}};\n\n")
            self._known[key] = name
        return f"&{self._known[key]}"

    def _fields(self, x: CStruct, prefix: str) -> Iterator[str]:
        """Yield the initialisers of the fields that are given."""
        types = c_types(type(x))
        for name, value in x.given().items():
            is_nested = isinstance(value, CStruct) and value.ctype == types[name]
            if is_nested and value.is_complete:
                # Without names, as an array.
                elements = [self._operand(v) for v in value.given().values()]
                yield f"{prefix}{name} = {{{', '.join(elements)}}}"
            elif is_nested:
                yield from self._fields(value, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name} = {self._operand(value)}"

    def _known_to_linkers(self, x: object) -> bool:
        """Whether an operand's expression may initialize a constant of C."""
        match x:
            case Pointer() | Scratch() | Share():
                return False
            case Table():
                return self.const(x.array, x.hint).isidentifier()
            case CStruct():
                return all(map(self._known_to_linkers, x.given().values()))
            case list() | tuple():
                return all(map(self._known_to_linkers, x))
        return True

    def ptr(self, x: Pointer) -> str:
        """Constants by name, inputs and outputs from the caller's tables, the rest in
        the arena.
        """
        value = x.value
        offset = x.offset
        if value.const is not None:
            base = self.const(value.const, "c")
        else:
            place = self.places[value]
            base = self._base(place.root, CTYPES[value.type.dtype])
            offset += place.at // value.type.np_dtype.itemsize
        return f"{base} + {offset}" if offset else base

    def _base(self, root: Value, ctype: str) -> str:
        """The first byte of a value that has bytes of its own."""
        if root in self.graph.outputs:
            return f"(({ctype} *)out[{self.graph.outputs.index(root)}])"
        if root in self.graph.inputs:
            return f"((const {ctype} *)in[{self.graph.inputs.index(root)}])"
        return f"(({ctype} *)(m + {self._symbol(root.name)}))"

    def _symbol(self, name: str) -> str:
        if name not in self.symbols:
            base = "at_" + re.sub(r"\W", "_", name)
            self.symbols[name] = unique(base, set(self.symbols.values()).__contains__)
        return self.symbols[name]

    def const(self, array: Array, hint: str) -> str:
        """Equal arrays are written once; with text="none" those of an op alone, and
        only the very same ones.
        """
        key = (f"{array.dtype}{hint if array.size == 0 else ''}", array.tobytes())
        if self.text == "none":
            key = (f"{self._index} {array.dtype}", id(array).to_bytes(8, "little"))
            self._apart.append(array)  # so that no other gets its id
        if key not in self._known:
            name = unique(f"{hint}{self._index}", self._names.__contains__)
            self._names.add(name)
            self.constant_bytes += array.nbytes
            small = array.nbytes <= (TABLE_BYTES if array.ndim == 1 else SMALL_BYTES)
            as_text = self.text == "all" or (self.text == "small" and small)
            self._known[key] = (
                self._as_text(array, name) if as_text else self._as_weights(array, name)
            )
        return self._known[key]

    def _as_text(self, array: Array, name: str) -> str:
        ctype = CTYPES[str(array.dtype)]
        self.constants.append(
            f"static const {ctype} {name}[{max(1, array.size)}] = "
            f"{{\n{_elements(array)}}};\n\n"
        )
        return name

    def _as_weights(self, array: Array, name: str) -> str:
        ctype = CTYPES[str(array.dtype)]
        at = self.weights.place(array)
        shape = "".join(f"[{n}]" for n in array.shape)
        self.table.append(
            f"    {name} = {at}, /* {ctype}{shape} of {self._function} */\n"
        )
        return f"((const {ctype} *)(w + {name}))"

    def scratch(self, nbytes: int) -> str:
        """A buffer that lives during this op: one of a part alone."""
        if nbytes <= STACK_BYTES:
            self._stack = max(self._stack, nbytes)
            return "((void *)stack)"
        name = f"scratch of op {self._index}.{len(self.scratches)}"
        own = aligned(nbytes)
        self.scratches.append(Lifetime(name, own * self._parts, self._step, self._step))
        part = "" if self._parts == 1 else f" + (ptrdiff_t)part * {own}"
        return f"((void *)(m + {self._symbol(name)}{part}))"


def _no_kernel(op: Op) -> UnsupportedError:
    types = ", ".join(sorted({_type_text(v) for v in (*op.inputs, *op.outputs)}))
    hint = "compute it in float32, or leave it to the program around the model"
    return UnsupportedError(
        f"edgec has no C kernel for {op.kind} of {types}",
        f"{op.source} ({op.kind})",
        hint,
    )


def _type_text(v: Value) -> str:
    return v.type.dtype + (" without a scale" if v.type.is_plain_int8 else "")


def _literal(value: object) -> str:
    if isinstance(value, (float, np.floating)):
        return float_literal(float(value))
    if isinstance(value, (bool, np.bool_)):
        return str(int(value))
    return str(value)


def float_literal(value: float) -> str:
    """A float32 constant that reads back exactly."""
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = f"{value:.9g}"
    return f"{text}f" if any(ch in text for ch in ".en") else f"{text}.0f"


def _elements(array: Array) -> str:
    """Comma-separated initialisers, wrapped."""
    flat = array.reshape(-1)
    if array.size == 0:
        return "    0,\n"
    if array.dtype == np.float32:
        items = [float_literal(v) for v in flat.tolist()]
    elif array.dtype == np.float64:
        items = [repr(v) for v in flat.tolist()]
    elif array.dtype == np.float16:
        items = [str(v) for v in flat.view(np.uint16).tolist()]
    elif array.dtype.kind == "u" and array.dtype.itemsize > 2:
        items = [f"{v}u" for v in flat.tolist()]
    elif array.dtype == np.int32 or array.dtype == np.int64:
        # the most negative number has no literal of its own type
        low = int(np.iinfo(array.dtype).min)
        items = [str(int(v)) if v != low else f"{low + 1} - 1" for v in flat.tolist()]
    else:
        items = [str(int(v)) for v in flat.tolist()]
    width = 16 if array.dtype.kind != "f" else 8
    return "".join(
        "    " + ", ".join(items[i : i + width]) + ",\n"
        for i in range(0, len(items), width)
    )
