"""The functions of a segment that a caller sees (csrc/ek_model.h): they call those of
its ops, in order.
"""

from __future__ import annotations

from collections.abc import Sequence

_PORTS = "void *memory, const void *weights, const void *const *in, void *const *out"
_MARKS = "void (*mark)(void *, int), void *context"
_BEGIN = "    unsigned char *m = memory;\n    const unsigned char *w = weights;\n"
_END = "    (void)m, (void)w, (void)in, (void)out;\n    return 0;\n}\n"
_BEGIN_FLUSHED = f"{_BEGIN}    const unsigned before = ek_no_denormals();\n"
_END_FLUSHED = f"    ek_denormals_as(before);\n{_END}"


def entries(
    name: str, calls: Sequence[Sequence[str]], threads: int, flushed: bool = False
) -> str:
    """calls: for each op of a profile the statements that compute it; none where a
    later one does so too. flushed: without denormal floats (csrc/ek_denormals.h).
    """
    ends = (_BEGIN_FLUSHED, _END_FLUSHED) if flushed else (_BEGIN, _END)
    if threads == 1:
        return _of_one(name, calls, *ends)
    return _of_several(name, calls, threads, *ends)


def _of_one(name: str, calls: Sequence[Sequence[str]], begin: str, end: str) -> str:
    """Apart, so that a run looks at no marks."""
    run = f"int edgec_{name}_run({_PORTS})"
    profile = f"int edgec_{name}_profile({_PORTS}, {_MARKS})"
    lines = ["".join(f"    {call}\n" for call in each) for each in calls]
    marked = "".join(f"    mark(context, {i});\n{line}" for i, line in enumerate(lines))
    return (
        f"EK_API {run};\nEK_API {profile};\n"
        + f"{run} {{\n{begin}{''.join(lines)}{end}"
        + f"{profile} {{\n{begin}{marked}    mark(context, {len(calls)});\n{end}"
    )


def _of_several(
    name: str, calls: Sequence[Sequence[str]], threads: int, begin: str, end: str
) -> str:
    """One for all, with and without threads and marks."""
    run = f"int edgec_{name}_run({_PORTS})"
    profile = f"int edgec_{name}_profile({_PORTS}, {_MARKS})"
    run_on = f"int edgec_{name}_run_on(ek_threads *threads, {_PORTS}, {_MARKS})"
    lines = "".join(
        "    if (mark) mark(context, "
        f"{i});\n{''.join(f'    {call}{chr(10)}' for call in each)}"
        for i, each in enumerate(calls)
    )
    return (
        f"EK_API {run};\nEK_API {profile};\nEK_API {run_on};\n"
        + f"{run_on} {{\n    if (threads && threads->parts > {threads}) return 1;\n"
        + f"{begin}    const ek_run_t run = {{m, w, in, out}};\n    (void)run;\n"
        + f"{lines}    if (mark) mark(context, {len(calls)});\n{end}"
        + f"{run} {{\n    return edgec_{name}_run_on(NULL, memory, weights, in, out, "
        f"NULL, NULL);\n}}\n"
        + f"{profile} {{\n    return edgec_{name}_run_on(NULL, memory, weights, in, "
        f"out, mark, context);\n}}\n"
    )
