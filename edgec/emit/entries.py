"""The public C functions of a segment (csrc/ek_model.h), which call those of its ops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_PORTS = "void *memory, const void *weights, const void *const *in, void *const *out"
_MARKS = "void (*mark)(void *, int), void *context"
_BEGIN = "    unsigned char *m = memory;\n    const unsigned char *w = weights;\n"
_END = "    (void)m, (void)w, (void)in, (void)out;\n    return 0;\n}\n"


@dataclass(frozen=True)
class _BodyFrame:
    """The text around the calls of a function's body.

    Attributes:
        begin: the lines before the calls
        end: the lines after them, with the closing brace
    """

    begin: str
    end: str


_PLAIN = _BodyFrame(_BEGIN, _END)
_FLUSHED = _BodyFrame(
    f"{_BEGIN}    const unsigned before = ek_no_denormals();\n",
    f"    ek_denormals_as(before);\n{_END}",
)


def entry_functions(
    name: str, calls: Sequence[Sequence[str]], threads: int, flushed: bool = False
) -> str:
    """Return the C of a segment's public functions.

    Args:
        name: name of the segment
        calls: the statements that compute each op of a profile; none where a later op
            computes it
        threads: the most threads that the code is for
        flushed: whether denormal floats are flushed to zero (csrc/ek_denormals.h)
    """
    frame = _FLUSHED if flushed else _PLAIN
    if threads == 1:
        return _single_thread(name, calls, frame)
    return _multi_thread(name, calls, threads, frame)


def _single_thread(name: str, calls: Sequence[Sequence[str]], frame: _BodyFrame) -> str:
    """Return the functions of a segment for one thread.

    They are separate, so that an ordinary run tests no marks.
    """
    run = f"int edgec_{name}_run({_PORTS})"
    profile = f"int edgec_{name}_profile({_PORTS}, {_MARKS})"
    bodies = [_statements(statements) for statements in calls]

    marked: list[str] = []
    for i, body in enumerate(bodies):
        marked.append(f"    mark(context, {i});\n{body}")
    # The mark behind the last op ends its time.
    marked.append(f"    mark(context, {len(calls)});\n")

    run_body = "".join(bodies)
    profile_body = "".join(marked)
    return (
        f"EK_API {run};\nEK_API {profile};\n"
        f"{run} {{\n{frame.begin}{run_body}{frame.end}"
        f"{profile} {{\n{frame.begin}{profile_body}{frame.end}"
    )


def _multi_thread(
    name: str, calls: Sequence[Sequence[str]], threads: int, frame: _BodyFrame
) -> str:
    """Return the functions of a segment for several threads.

    One serves all cases, since the tests cost little beside sharing.
    """
    run = f"int edgec_{name}_run({_PORTS})"
    profile = f"int edgec_{name}_profile({_PORTS}, {_MARKS})"
    run_on = f"int edgec_{name}_run_on(ek_threads *threads, {_PORTS}, {_MARKS})"
    marked: list[str] = []
    for i, statements in enumerate(calls):
        marked.append(f"    if (mark) mark(context, {i});\n{_statements(statements)}")
    last_mark = f"    if (mark) mark(context, {len(calls)});\n"
    return (
        f"EK_API {run};\nEK_API {profile};\nEK_API {run_on};\n"
        f"{run_on} {{\n"
        f"    if (threads && threads->parts > {threads}) return 1;\n"
        f"{frame.begin}"
        "    const ek_run_t run = {m, w, in, out};\n    (void)run;\n"
        f"{''.join(marked)}{last_mark}{frame.end}"
        f"{run} {{\n"
        f"    return edgec_{name}_run_on(NULL, memory, weights, in, out, NULL, NULL);\n"
        "}\n"
        f"{profile} {{\n"
        f"    return edgec_{name}_run_on(NULL, memory, weights, in, out, mark, context);\n"
        "}\n"
    )


def _statements(statements: Sequence[str]) -> str:
    """Return indented lines of C."""
    return "".join(f"    {statement}\n" for statement in statements)
