"""The C text of the functions of a segment, and the constants that they read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from edgec.emit.elements import float16_call, inclusion
from edgec.emit.literals import CTYPES, initialiser, literal
from edgec.emit.memory import ArenaPlan
from edgec.emit.weights import WeightsFile
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
from edgec.ir.graph import unique
from edgec.schedule.fuse import FusedStep
from edgec.schedule.kernels.copies import CONCAT_PART
from edgec.schedule.liveness import STACK_BYTES, Lifetime, aligned
from edgec.schedule.views import Places

MAX_TEXT_BYTES = 256
"""Bytes of the largest constant of several dimensions that is written as text."""
MAX_TEXT_TABLE_BYTES = 4096
"""Bytes of the largest constant of one dimension that is written as text."""

Text = Literal["small", "all", "none"]
"""The constants that are written as text rather than to the weights file."""

_PARAMETERS = (
    # restrict: no store changes what was read from the weights, as with a const array.
    "unsigned char *m, const unsigned char *restrict w, "
    "const void *const *in, void *const *out"
)
"""The parameters of a function: arena, weights, tables of inputs and outputs."""


@dataclass
class Writer:
    """Writes the C of one segment, and collects its constants and scratch memory.

    Attributes:
        graph: the segment, whose inputs and outputs the caller owns
        places: the places of the values
        weights: the file for constants that are not text
        text: the constants that are written as text
        threads: the most threads that share a call
        constants: the constants as text
        table: lines of an enum with the offsets of the others in the weights file
        bodies: the functions
        calls: the kernels that are called, or whose addresses are passed
        scratches: the scratch memory that lies in the arena
        symbols: the names of offsets in the arena, by the names of values and buffers
        constant_bytes: bytes of all constants
        spans: for each op the part of the weights file that its step wrote
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
        """Begin without a function."""
        self._index = 0
        """The op that the function computes, for the names of its constants."""
        self._step = -1
        """The number of the step, for the lifetime of its scratch memory."""
        self._function = ""
        self._parts = 1
        """Threads that share the call that is written."""
        self._stack_bytes = 0
        self._expressions: dict[tuple[str, bytes], str] = {}
        """The C expressions of constants, by their types and bytes."""
        self._names: set[str] = set()
        self._kept_arrays: list[Array] = []
        """Arrays that are known by their ids, which others must not get."""

    def step(self, step: FusedStep) -> list[str]:
        """Write the functions of a step, and return the statements that call them.

        A step is one function, or one for each call where threads share some of them.
        """
        ops = [self.graph.ops[i] for i in step.ops]
        function = f"op{step.ops[0]}_{'_'.join(op.kind for op in ops)}"
        self._begin(step.ops[0], function)

        # Constants that were written before are not part of the span.
        first = aligned(len(self.weights))
        self.bodies.extend(map(_comment, ops))
        statements = self._statements(function, step)
        self.spans[step.ops[0]] = (first, max(first, len(self.weights)))

        return statements

    def _begin(self, index: int, function: str) -> None:
        """Begin the function of an op."""
        self._index = index
        self._function = function
        self._step += 1

    def _statements(self, function: str, step: FusedStep) -> list[str]:
        """Write the functions of a step, and return the statements that call them."""
        if not step.shared or not any(call.divisible for call in step.calls):
            return [self.whole(function, step.calls)]

        # The parts of a concat do not read what the others write.
        if all(call.kernel == CONCAT_PART for call in step.calls):
            return [self._part(function, step.calls)]

        statements: list[str] = []
        for i, call in enumerate(step.calls):
            name = function if i == 0 else f"{function}_{i}"
            if call.divisible:
                statements.append(self._part(name, (call,)))
            else:
                statements.append(self.whole(name, (call,)))

        return statements

    def whole(self, function: str, calls: Sequence[KernelCall]) -> str:
        """Write a function that one thread runs, and return the call of it."""
        body = self._body(calls)
        self.bodies.append(
            f"EK_OP void {function}({_PARAMETERS}) {{\n"
            f"    (void)m, (void)w, (void)in, (void)out;\n    {body}\n}}\n\n"
        )
        return f"{function}(m, w, in, out);"

    def alone(self, function: str, call: KernelCall) -> str:
        """Write a function for one call of no op, and return the call of it."""
        self._begin(self._index + 1, function)
        return self.whole(function, (call,))

    def _part(self, function: str, calls: Sequence[KernelCall]) -> str:
        """Write a function that threads share, and return the statement that runs it."""
        # Scratch that is asked for meanwhile is reserved for each thread.
        self._parts = self.threads
        body = self._body(calls)
        self._parts = 1
        self.bodies.append(
            f"EK_OP void {function}(const void *run, int part, int parts) {{\n"
            f"    EK_OF_RUN(run);\n    {body}\n}}\n\n"
        )
        return f"ek_on_threads(threads, {function}, &run);"

    def _body(self, calls: Sequence[KernelCall]) -> str:
        """Return the statements of calls, and the stack memory of their scratch."""
        # The stack is as large as the largest scratch of any call.
        self._stack_bytes = 0
        statements = [self._call(call) for call in calls]
        if self._stack_bytes:
            statements.insert(0, f"EK_STACK({self._stack_bytes});")

        return "\n    ".join(statements)

    def _call(self, call: KernelCall) -> str:
        """Return the statement of a call."""
        if call.is_float16:
            call = float16_call(call)
        kernel = self._operand(call.kernel)
        operands = ", ".join(self._operand(x) for x in call.operands)
        return f"{kernel}({operands});"

    def _operand(self, x: object) -> str:
        """Return the C expression of an operand, or of a field of a struct."""
        match x:
            case Pointer():
                return self.pointer(x)
            case Table():
                return self.constant(x.array, x.hint)
            case Scratch():
                return self._scratch(x.nbytes)
            case Share():
                return x.alone if self._parts == 1 else x.shared
            case Kernel():
                self.calls.add(x)
                return x.name
            case CStruct():
                return self._struct(x)
            case list() | tuple():
                return f"{{{', '.join(self._operand(v) for v in x)}}}"

        return literal(x)

    def _struct(self, x: CStruct) -> str:
        """Return the address of a struct.

        It is a constant where all fields are known when the program is linked: code
        that fills it in at each call takes three times the room, and compilers see
        through both.
        """
        fields = ", ".join(self._fields(x, "."))
        if not self._is_link_constant(x):
            return f"&(const {x.ctype}){{{fields}}}"

        # Equal structs are written once.
        key = (x.ctype, fields.encode())
        if key not in self._expressions:
            name = unique(f"p{self._index}", self._names.__contains__)
            self._names.add(name)
            self.constants.append(f"static const {x.ctype} {name} = {{{fields}}};\n\n")
            self._expressions[key] = name

        return f"&{self._expressions[key]}"

    def _fields(self, x: CStruct, prefix: str) -> Iterator[str]:
        """Yield the initialisers of the fields that are given.

        prefix: the path to the struct, which may lie in another one.
        """
        for name, value in x.given().items():
            # A field of a pointer type has the address of another struct.
            field = x.c_fields[name]
            is_nested = isinstance(value, CStruct) and type(value).ctype == field.ctype
            if is_nested and value.is_complete:
                elements = [self._operand(v) for v in value.given().values()]
                yield f"{prefix}{name} = {{{', '.join(elements)}}}"
            elif is_nested:
                yield from self._fields(value, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name} = {self._operand(value)}"

    def _is_link_constant(self, x: object) -> bool:
        """Return whether an operand's expression may initialise a constant of C."""
        match x:
            case Pointer() | Scratch() | Share():
                return False
            case Table():
                # Constants in the weights file have no fixed address.
                return self.constant(x.array, x.hint).isidentifier()
            case CStruct():
                return all(map(self._is_link_constant, x.given().values()))
            case list() | tuple():
                return all(map(self._is_link_constant, x))

        return True

    def pointer(self, x: Pointer) -> str:
        """Return a pointer to the elements of a tensor.

        Constants have names, inputs and outputs are in the caller's tables, all others
        in the arena.
        """
        value = x.value
        offset = x.offset
        if value.const is not None:
            base = self.constant(value.const, "c")
        else:
            place = self.places[value]
            base = self._base(place.root, CTYPES[value.type.dtype])
            offset += place.at // value.type.np_dtype.itemsize

        return f"{base} + {offset}" if offset else base

    def _base(self, root: Value, ctype: str) -> str:
        """Return a pointer to the first byte of a value that has bytes of its own."""
        # An output that is an input is never written: its elements are the caller's.
        if root in self.graph.inputs:
            return f"((const {ctype} *)in[{self.graph.inputs.index(root)}])"
        if root in self.graph.outputs:
            return f"(({ctype} *)out[{self.graph.outputs.index(root)}])"

        return f"(({ctype} *)(m + {self._symbol(root.name)}))"

    def _symbol(self, name: str) -> str:
        """Return the name of an offset in the arena, which is known only later."""
        if name not in self.symbols:
            base = "at_" + re.sub(r"\W", "_", name)
            self.symbols[name] = unique(base, set(self.symbols.values()).__contains__)

        return self.symbols[name]

    def constant(self, array: Array, hint: str) -> str:
        """Return the expression of a constant array.

        Equal arrays are written once; with text="none" only for one op, and only if
        they are the same object, so that the text does not depend on their elements.
        hint: the beginning of its name.
        """
        # Empty arrays have no bytes to tell them apart.
        key = (f"{array.dtype}{hint if array.size == 0 else ''}", array.tobytes())
        if self.text == "none":
            key = (f"{self._index} {array.dtype}", id(array).to_bytes(8, "little"))
            # Python could give the id of an array that is gone to another one.
            self._kept_arrays.append(array)

        if key not in self._expressions:
            self._expressions[key] = self._written(array, hint)

        return self._expressions[key]

    def _written(self, array: Array, hint: str) -> str:
        """Write a constant array, and return its expression."""
        name = unique(f"{hint}{self._index}", self._names.__contains__)
        self._names.add(name)
        self.constant_bytes += array.nbytes

        limit = MAX_TEXT_TABLE_BYTES if array.ndim == 1 else MAX_TEXT_BYTES
        is_small = self.text == "small" and array.nbytes <= limit
        if self.text == "all" or is_small:
            return self._as_text(array, name)

        return self._as_weights(array, name)

    def _as_text(self, array: Array, name: str) -> str:
        """Write an array as a C array."""
        ctype = CTYPES[str(array.dtype)]
        self.constants.append(
            f"static const {ctype} {name}[{max(1, array.size)}] = "
            f"{{\n{initialiser(array)}}};\n\n"
        )
        return name

    def _as_weights(self, array: Array, name: str) -> str:
        """Write an array to the weights file."""
        ctype = CTYPES[str(array.dtype)]
        offset = self.weights.place(array)
        shape = "".join(f"[{n}]" for n in array.shape)
        self.table.append(
            f"    {name} = {offset}, /* {ctype}{shape} of {self._function} */\n"
        )
        return f"((const {ctype} *)(w + {name}))"

    def _scratch(self, nbytes: int) -> str:
        """Return a buffer that lives while this function runs.

        In the arena each thread has a buffer of its own.
        """
        if nbytes <= STACK_BYTES:
            self._stack_bytes = max(self._stack_bytes, nbytes)
            return "((void *)stack)"

        name = f"scratch of op {self._index}.{len(self.scratches)}"
        part_bytes = aligned(nbytes)
        all_bytes = part_bytes * self._parts
        # Alive in this step only, so that other steps may use the same bytes.
        self.scratches.append(Lifetime(name, all_bytes, self._step, self._step))
        part = "" if self._parts == 1 else f" + (ptrdiff_t)part * {part_bytes}"
        return f"((void *)(m + {self._symbol(name)}{part}))"


def _comment(op: Op) -> str:
    """Return a line that says what an op computes, with the shapes of its tensors."""
    operands = ", ".join(_sizes(v) for v in op.inputs if v.const is None)
    text = f"{op.kind} {operands} -> {', '.join(map(_sizes, op.outputs))}"
    window = op.spec.window(op)
    if window is not None:
        (height, width), (down, across) = window
        stride = f"{down}" if down == across else f"{down}x{across}"
        text += f", {height}x{width} stride {stride}"
    if op.source:
        # Names of nodes may have characters that end a comment.
        text += ": " + re.sub(r"[^\w ./:-]", "_", op.source)

    return f"/* {text} */\n"


def _sizes(value: Value) -> str:
    """Return the shape of a tensor, as 1x224x224x3."""
    return "x".join(map(str, value.type.shape)) or "scalar"


def file_text(
    writer: Writer, plan: ArenaPlan, headers: Sequence[str], name: str
) -> str:
    """Return the whole file but the functions that callers see."""
    parts = [f"/* Segment {name}. Generated by edgec; do not edit. */\n"]
    parts += map(inclusion, headers)

    # Buffers that no function uses have no name.
    offsets = [
        f"    {writer.symbols[buffer]} = {offset},\n"
        for buffer, offset in plan.offsets.items()
        if buffer in writer.symbols
    ]
    parts.append(_enum("offsets in the arena, bytes", offsets))
    parts.append(_enum("offsets in the weights file, bytes", writer.table))
    parts.append("\n")
    return "".join((*parts, *writer.constants, *writer.bodies))


def _enum(note: str, lines: Sequence[str]) -> str:
    """Return an enum of offsets; nothing for none."""
    if not lines:
        return ""

    return f"\nenum {{ /* {note} */\n{''.join(lines)}}};\n"
