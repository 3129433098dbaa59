"""The pipeline model: the decoder, the times of known loops, and what the plugin for
QEMU counts.
"""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from edgec_devices import cores
from edgec_devices.boards import Board, Cache, boards
from edgec_devices.cores import core_facts, core_file, pipelined_cores
from edgec_devices.estimates import estimated
from edgec_devices.multicore import BARRIER_US, cycles_alone
from edgec_devices.pipeline import (
    Block,
    Bucket,
    Counts,
    Estimate,
    PipelineCore,
    estimate,
    plugin_option,
)
from edgec_devices.pipeline.decode import block, decode
from edgec_devices.pipeline.insn import FLAGS, SP, VECTOR, Insn
from edgec_devices.pipeline.steady import cycles
from edgec_devices.plugin import block_count_plugin
from edgec_runtime import Bundle, InputError, ToolError, write_bundle
from edgec_runtime.bundle.archive import WEIGHTS_FILE
from msgspec import structs

from edgec.emit.c import CSRC
from edgec.toolchain.cc import CODE_FLAGS
from tests.runtime import tiny_model

V = VECTOR
CORES = ("cortex_a53", "cortex_a72", "cortex_a76")
X86 = ("_avx2", "_avx512", "_sse", "_x86")
Assembler = Callable[[str], list[Insn]]


def zig(*args: str | Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "ziglang",
            "cc",
            "-target",
            "aarch64-linux-musl",
            *map(str, args),
        ],
        check=True,
    )


def text_section(elf: bytes) -> bytes:
    """The machine code of an object file."""
    start, (size, count, _) = (
        struct.unpack_from("<Q", elf, 0x28)[0],
        struct.unpack_from("<3H", elf, 0x3A),
    )
    for i in range(count):
        _, kind, flags, _, offset, length = struct.unpack_from(
            "<IIQQQQ", elf, start + i * size
        )
        if kind == 1 and flags & 4 and length:  # contents, executable
            return elf[offset : offset + length]
    raise AssertionError("no code")


@pytest.fixture(scope="module")
def assemble(tmp_path_factory: pytest.TempPathFactory) -> Assembler:
    """assemble("add x0, x1, x2; ret"): its instructions."""
    folder = tmp_path_factory.mktemp("assembled")

    def run(text: str) -> list[Insn]:
        (folder / "a.s").write_text(
            ".arch armv8.2-a+dotprod+fp16\n" + text.replace(";", "\n") + "\n"
        )
        zig("-mcpu=cortex_a76", "-c", folder / "a.s", "-o", folder / "a.o")
        return block(text_section((folder / "a.o").read_bytes()))

    return run


# ---- the decoder
# --------------------------------------------------------------------------------------

DECODED = {
    "add x1, x2, x3": Insn("alu", (2, 3), (1,)),
    "add sp, sp, #16": Insn("alu", (SP,), (SP,)),
    "adds w1, w2, w3": Insn("alu", (2, 3), (1, FLAGS)),
    "cmp x1, #4": Insn("alu", (1,), (FLAGS,)),
    "mov w1, wzr": Insn("alu", (), (1,)),
    "add x1, x2, x3, lsl #3": Insn("alu_small_shift", (2, 3), (1,)),
    "sub w1, w2, w3, asr #9": Insn("alu_shifted", (2, 3), (1,)),
    "add x1, sp, w3, sxtw #2": Insn("alu_shifted", (SP, 3), (1,)),
    "lsl x1, x2, #3": Insn("shift", (2,), (1,)),
    "lsl x1, x2, x3": Insn("shift_by_register", (2, 3), (1,)),
    "bfi w1, w2, #3, #4": Insn("bit_insert", (2, 1), (1,)),
    "movk x1, #4": Insn("alu", (1,), (1,)),
    "csel x1, x2, x3, lt": Insn("alu", (2, 3, FLAGS), (1,)),
    "ccmp w1, #2, #0, ne": Insn("alu", (1, FLAGS), (FLAGS,)),
    "madd w1, w2, w3, w4": Insn("mul", (2, 3), (1,), (4,)),
    "mul x1, x2, x3": Insn("mul_64", (2, 3), (1,)),
    "smull x1, w2, w3": Insn("mul_long", (2, 3), (1,)),
    "sdiv w1, w2, w3": Insn("div", (2, 3), (1,)),
    "cbz x1, .": Insn("branch", (1,)),
    "b.ne .": Insn("branch", (FLAGS,)),
    "blr x3": Insn("call", (3,), (30,)),
    "ret": Insn("branch", (30,)),
    "nop": Insn("nop"),
    "ldr w1, [x2, x3, lsl #2]": Insn("load", (2, 3), (1,)),
    "ldr x1, [x2], #8": Insn("load", (2,), (1,), (), 2),
    "ldrsb w1, [sp, #3]": Insn("load_signed", (SP,), (1,)),
    "ldp x1, x3, [x2, #-16]!": Insn("load_pair_64", (2,), (1, 3), (), 2),
    "ldr s1, [x2]": Insn("load_v", (2,), (V + 1,)),
    "ldur q1, [x2, #-1]": Insn("load_v_q", (2,), (V + 1,)),
    "ldp q1, q2, [x3]": Insn("load_pair_v_q", (3,), (V + 1, V + 2)),
    "prfm pldl1keep, [x2]": Insn("prefetch", (2,)),
    "str q1, [x2], #16": Insn("store_v_q", (2,), (), (V + 1,), 2),
    "stp w1, w3, [sp]": Insn("store_pair", (SP,), (), (1, 3)),
    "ld1 {v31.16b, v0.16b}, [x2]": Insn("load_1x2_q", (2,), (V + 31, V)),
    "ld2 {v1.8b, v2.8b}, [x2], #16": Insn("load_2x2", (2,), (V + 1, V + 2), (), 2),
    "ld1 {v1.s}[1], [x2]": Insn("load_lane", (2, V + 1), (V + 1,)),
    "ld1r {v1.4s}, [x2]": Insn("load_all_lanes", (2,), (V + 1,)),
    "add v1.4s, v2.4s, v3.4s": Insn("v_int_q", (V + 2, V + 3), (V + 1,)),
    "add v1.8b, v2.8b, v3.8b": Insn("v_int", (V + 2, V + 3), (V + 1,)),
    "bsl v1.16b, v2.16b, v3.16b": Insn("v_select_q", (V + 2, V + 3, V + 1), (V + 1,)),
    "mov v1.16b, v2.16b": Insn("v_move_q", (V + 2,), (V + 1,)),
    "movi v1.4s, #0": Insn("v_move_q", (), (V + 1,)),
    "mla v1.8h, v2.8h, v3.8h": Insn("v_mla_q", (V + 2, V + 3), (V + 1,), (V + 1,)),
    "smlal v1.4s, v2.4h, v3.h[2]": Insn(
        "v_mla_long_q", (V + 2, V + 3), (V + 1,), (V + 1,)
    ),
    "smull2 v1.4s, v2.8h, v3.8h": Insn("v_mul_long_q", (V + 2, V + 3), (V + 1,)),
    "sqrdmulh v1.4s, v2.4s, v3.s[0]": Insn("v_mul_q", (V + 2, V + 3), (V + 1,)),
    "sadalp v1.4s, v2.8h": Insn("v_pair_acc_q", (V + 2,), (V + 1,), (V + 1,)),
    "sdot v1.4s, v2.16b, v19.4b[1]": Insn(
        "v_dot_q", (V + 2, V + 19), (V + 1,), (V + 1,)
    ),
    "sshll2 v1.8h, v2.16b, #0": Insn("v_shift_q", (V + 2,), (V + 1,)),
    "ssra v1.4s, v2.4s, #3": Insn("v_shift_acc_q", (V + 2,), (V + 1,), (V + 1,)),
    "srshl v1.4s, v2.4s, v3.4s": Insn(
        "v_shift_round_by_register_q", (V + 2, V + 3), (V + 1,)
    ),
    "sqxtn2 v1.8h, v2.4s": Insn("v_narrow_saturating_q", (V + 2, V + 1), (V + 1,)),
    "zip1 v1.8b, v2.8b, v3.8b": Insn("v_zip", (V + 2, V + 3), (V + 1,)),
    "tbl v1.16b, {v2.16b, v3.16b}, v4.16b": Insn(
        "v_table_2_q", (V + 4, V + 2, V + 3), (V + 1,)
    ),
    "dup v1.4s, w2": Insn("v_dup_general_q", (2,), (V + 1,)),
    "mov v1.s[1], w2": Insn("v_insert_general", (2, V + 1), (V + 1,)),
    "umov w1, v2.b[1]": Insn("v_element_to_general", (V + 2,), (1,)),
    "addv s1, v2.4s": Insn("v_reduce_q", (V + 2,), (V + 1,)),
    "fmadd s1, s2, s3, s4": Insn("fp_fma", (V + 2, V + 3), (V + 1,), (V + 4,)),
    "fmla v1.4s, v2.4s, v3.s[1]": Insn("fp_fma_q", (V + 2, V + 3), (V + 1,), (V + 1,)),
    "fadd s1, s2, s3": Insn("fp_add", (V + 2, V + 3), (V + 1,)),
    "fmul v1.2s, v2.2s, v3.2s": Insn("fp_mul", (V + 2, V + 3), (V + 1,)),
    "fdiv d1, d2, d3": Insn("fp_div_64", (V + 2, V + 3), (V + 1,)),
    "fsqrt v1.4s, v2.4s": Insn("fp_sqrt_q", (V + 2,), (V + 1,)),
    "fcmp s1, #0.0": Insn("fp_compare_flags", (V + 1,), (FLAGS,)),
    "fcsel s1, s2, s3, lt": Insn("fp_select", (V + 2, V + 3, FLAGS), (V + 1,)),
    "fcvtzs w1, s2": Insn("convert_to_general", (V + 2,), (1,)),
    "scvtf s1, w2": Insn("convert_from_general", (2,), (V + 1,)),
    "fmov w1, s2": Insn("v_to_general", (V + 2,), (1,)),
    "fcvtl v1.4s, v2.4h": Insn("fp_resize_q", (V + 2,), (V + 1,)),
    "fcvtn2 v1.4s, v2.2d": Insn("fp_resize_64_q", (V + 2, V + 1), (V + 1,)),
    "scvtf v1.2d, v2.2d": Insn("fp_convert_64_q", (V + 2,), (V + 1,)),
    "scvtf v1.8h, v2.8h": Insn("fp_convert_q", (V + 2,), (V + 1,)),
    "fdiv v1.2d, v2.2d, v3.2d": Insn("fp_div_64_q", (V + 2, V + 3), (V + 1,)),
}


def test_decoder(assemble: Assembler) -> None:
    found = assemble(";".join(DECODED))
    assert dict(zip(DECODED, found, strict=True)) == DECODED


@pytest.mark.parametrize("word", [0x00000000, 0xFFFFFFFF, 0x05200000, 0x4E285800])
def test_what_the_decoder_does_not_know(word: int) -> None:
    assert decode(word).kind == "unknown"  # nothing, nothing, SVE, AES


@pytest.mark.sweep(1)
@pytest.mark.cc
@pytest.mark.parametrize(
    ("name", "isa"),
    [(c, isa) for c in CORES for isa in ("simd", "neon")] + [(CORES[2], "dot")],
)
def test_no_instruction_of_our_kernels_is_unknown(
    name: str, isa: str, tmp_path: Path
) -> None:
    """All variants of the kernels that a core may be given, whether or not a network of
    ours uses them.
    """
    headers = [h for h in sorted((CSRC / isa).glob("*.h")) if not h.stem.endswith(X86)]
    shared = (
        "#undef EK_SHARED\n#define EK_SHARED static __attribute__((noinline, used))\n"
    )
    (tmp_path / "a.c").write_text(
        f'#include "ek_base.h"\n{shared}'
        + "".join(f'#include "{h}"\n' for h in headers)
    )
    mcpu = f"-mcpu={name.replace('-', '_')}"
    zig(
        mcpu,
        *CODE_FLAGS,
        "-w",
        "-I",
        CSRC,
        "-c",
        tmp_path / "a.c",
        "-o",
        tmp_path / "a.o",
    )
    code = text_section((tmp_path / "a.o").read_bytes())
    core = PipelineCore.load(name)
    words = {code[i : i + 4] for i in range(0, len(code), 4)}
    assert len(words) > 1000
    assert [
        w[::-1].hex()
        for w in words
        if core.time(block(w)[0].kind) in (None, core.unknown)
    ] == []


@pytest.mark.parametrize("name", pipelined_cores())
def test_every_core_has_a_time_for_every_kind(name: str) -> None:
    core = PipelineCore.load(name)
    facts = core_facts(name)
    assert facts is not None
    lacks = {i.kind for i in DECODED.values() if core.time(i.kind) is None}
    assert lacks == (set() if "dotprod" in facts.isa else {"v_dot_q"})


def test_boards_name_their_cores() -> None:
    modelled = [b for b in map(Board.load, boards()) if b.core]
    assert {b.core for b in modelled} == set(pipelined_cores()) >= set(CORES)
    for b in modelled:
        assert PipelineCore.load(b.core).name == b.core == b.target().mcpu
        sizes = [c.kib for c in b.caches]
        assert sizes == sorted(sizes)
        assert all(0 < c.foreseen < c.missed for c in b.caches)


def test_a_core_that_is_not_there() -> None:
    with pytest.raises(
        InputError, match='no pipeline model of "cortex_a27"; did you mean "cortex_a7'
    ):
        PipelineCore.load("cortex_a27")


@pytest.mark.parametrize(
    ("right", "wrong", "what"),
    [
        ("dispatch", "dispach", "unknown field `dispach` - at `$.pipeline`"),
        ("macs_s8 = 8", "", "missing required field `macs_s8`"),
        ("window = 128", "", "out of order, but has no dispatch or no window"),
        ('alu = "1 I"', 'alu = "I"', 'the time of alu is "I", which is not a latency'),
        ('alu = "1 I"', 'alu = "1 J"', "and pipes of B, I, M, L, S, V, F0, F1"),
        ("unknown =", "unknwn =", "has no time for unknown"),
    ],
)
def test_a_core_whose_file_is_wrong(
    right: str,
    wrong: str,
    what: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = core_file("cortex_a72").read_text()
    # Each file has a name of its own, since a core is read once.
    path = tmp_path / f"{tmp_path.name}.toml"
    # Comments have the words too.
    lines = [line.partition("#")[0] for line in text.splitlines()]
    path.write_text("\n".join(lines).replace(right, wrong, 1))
    monkeypatch.setattr(cores, "FOLDER", tmp_path)
    with pytest.raises(InputError) as e:
        PipelineCore.load(path.stem)
    assert what in e.value.what
    assert e.value.at == str(path)
    assert "docs/boards.md" in str(e.value.hint)


# ---- known loops
# --------------------------------------------------------------------------------------


def repeated(pattern: str, numbers: Sequence[int]) -> str:
    return ";".join(pattern.replace("$", str(n)) for n in numbers)


LOOPS = [
    # in order, two at a time
    ("cortex_a53", "add x1, x9, x9; add x2, x9, x9; add x3, x9, x9; add x4, x9, x9", 2),
    ("cortex_a53", "add x1, x1, #1; add x1, x1, #1", 2),
    ("cortex_a53", "ldr x1, [x9]; ldr x2, [x9]", 2),
    (
        "cortex_a53",
        "add v1.4s, v9.4s, v9.4s; add v2.4s, v9.4s, v9.4s",
        2,
    ),  # one of 128 bits a cycle
    ("cortex_a53", "add v1.2s, v9.2s, v9.2s; add v2.2s, v9.2s, v9.2s", 1),  # two of 64
    ("cortex_a53", "fmla v1.4s, v9.4s, v10.4s", 4),  # waits for its accumulator
    ("cortex_a53", "ldr w1, [x9]; add w2, w1, #1; mul w3, w9, w9", 3),
    ("cortex_a53", "ldr w1, [x9]; mul w3, w9, w9; add w2, w1, #1", 2),
    ("cortex_a53", "ldr q1, [x9]; ldr q2, [x9]", 2),
    (
        "cortex_a53",
        repeated("sadalp v1$.4s, v30.8h; smull v$.8h, v31.8b, v31.8b", range(1, 7)),
        18,
    ),
    # in order too, with FMLA in four cycles, and loads beside stores
    ("cortex_a55", "fmadd s1, s1, s9, s10", 4),
    ("cortex_a55", repeated("fmla v$.4s, v30.4s, v31.4s", range(8)), 8),
    ("cortex_a55", repeated("sdot v$.4s, v30.16b, v31.16b", range(8)), 8),
    ("cortex_a55", repeated("sdot v$.2s, v30.8b, v31.8b", range(8)), 4),
    ("cortex_a55", repeated("ldr q$, [x9]", range(8)), 16),
    ("cortex_a55", repeated("ldr d$, [x9]; fmla v1$.4s, v30.4s, v31.4s", range(8)), 8),
    ("cortex_a55", repeated("ldr x$, [x9]; str x$, [x10]", range(1, 7)), 6),
    # out of order
    (
        "cortex_a72",
        "fmadd s1, s9, s10, s1",
        3,
    ),  # the accumulator is needed four cycles later than the factors
    ("cortex_a72", "fmadd s1, s1, s9, s10", 7),
    ("cortex_a72", "fadd s1, s1, s9", 4),
    ("cortex_a72", repeated("fmadd s$, s30, s31, s$", range(8)), 4),  # two pipes
    ("cortex_a72", repeated("fmla v$.4s, v30.4s, v31.4s", range(8)), 8),  # both of them
    (
        "cortex_a72",
        repeated("smlal v$.4s, v30.4h, v31.4h", range(8)),
        8,
    ),  # only one multiplies integers
    (
        "cortex_a72",
        repeated("smull v$.8h, v30.8b, v31.8b; sadalp v1$.4s, v$.8h", range(1, 9)),
        16,
    ),
    ("cortex_a72", repeated("add x$, x9, x9", range(1, 7)), 3),
    ("cortex_a72", "ldr x1, [x1]", 4),
    ("cortex_a76", "fmadd s1, s9, s10, s1", 2),
    ("cortex_a76", "fadd s1, s1, s9", 2),
    ("cortex_a76", repeated("add x$, x9, x9", range(1, 7)), 2),
    ("cortex_a76", repeated("sdot v$.4s, v30.16b, v31.16b", range(8)), 4),
    ("cortex_a76", repeated("ldr q$, [x9]", range(8)), 4),
    ("cortex_a76", repeated("nop; nop; nop; nop", (1, 2)), 2),
]


@pytest.mark.parametrize(("core", "code", "expected"), LOOPS)
def test_known_loops(
    assemble: Assembler, core: str, code: str, expected: float
) -> None:
    assert cycles(assemble(code), PipelineCore.load(core)) == pytest.approx(
        expected, abs=0.1
    )


def test_order_matters_only_in_order(assemble: Assembler) -> None:
    stalling = assemble(
        "ldr w1, [x9]; add w2, w1, #1; ldr w3, [x9, #4]; add w4, w3, #1; ldr w5, [x9, "
        "#8]; add w6, w5, #1"
    )
    apart = [stalling[i] for i in (0, 2, 4, 1, 3, 5)]
    in_order = PipelineCore.load("cortex_a53")
    out_of_order = PipelineCore.load("cortex_a72")
    assert cycles(stalling, in_order) >= 1.5 * cycles(apart, in_order)
    assert cycles(stalling, out_of_order) == pytest.approx(
        cycles(apart, out_of_order), rel=0.05
    )


def test_a_division_keeps_its_pipe(assemble: Assembler) -> None:
    independent = assemble("fdiv v1.4s, v9.4s, v10.4s; fdiv v2.4s, v9.4s, v10.4s")
    for name in CORES:
        assert cycles(independent, PipelineCore.load(name)) >= 20


def test_an_empty_block_takes_no_time() -> None:
    assert cycles([], PipelineCore.load("cortex_a72")) == 0


# ---- estimates
# --------------------------------------------------------------------------------------


def test_an_estimate_is_the_sum_of_its_parts(assemble: Assembler) -> None:
    board = Board.load("pi4")
    add = bytes.fromhex("2100028b")  # add x1, x1, x2
    strange = bytes.fromhex("00000000")
    bucket = Bucket({0: 1000, 1: 10}, 7, ((5, 3, 4), (2, 1, 6)))
    counts = Counts(
        "aarch64",
        ({(0, 0): bucket, (0, 1): replace(bucket, ran={0: 1})},),
        {0: Block(1, add), 1: Block(1, strange)},
    )
    found = estimate(counts, board.core, board.caches)
    e = found[0, 0]
    assert (e.instructions, e.unknown, e.branches) == (1010, 10, 7 * 15)
    near, far = board.caches
    assert (
        e.memory
        == 5 * near.foreseen + 3 * near.missed + 2 * far.foreseen + 1 * far.missed
    )
    assert e.core == pytest.approx(
        1000 + 10 * cycles(block(strange), PipelineCore.load(board.core))
    )
    assert e.cycles == e.core + e.memory + e.branches
    assert (e.shared_lines, e.memory_lines) == (5 + 3 + 4, 2 + 1 + 6)
    assert found[0, 1].core == pytest.approx(1)
    assert (e + found[0, 1]).instructions == 1011
    assert e + Estimate(0, 0, 0, 0, 0) == e


def times_of_parts(folder: Path, board: Board, parts: Sequence[str]) -> list[float]:
    """The cycles of each op of a segment that ran by itself and in these parts."""
    lines = ["target aarch64", "inference"]
    lines += ["bucket 0 0 0 0 0 0 0 0 0\nran 0 500", *parts]
    lines += ["bucket 0 3 0 0 0 0 0 0 0", "block 0 1 2100028b", ""]
    (folder / "counts").write_text("\n".join(lines))
    counts = Counts.read(folder / "counts")
    write_bundle(folder / "tiny.edgec", *tiny_model.parts())
    with Bundle.open(folder / "tiny.edgec") as bundle:
        estimate = estimated(bundle, board, counts)
        segment, between = estimate.segments[0], estimate.between_ms
    assert segment.ms == pytest.approx(sum(op.ms for op in segment.ops))
    assert between == 0
    return [op.ms * board.clock_ghz * 1e6 for op in segment.ops]


def test_an_op_on_several_cores_takes_as_long_as_its_slowest_part(
    tmp_path: Path,
) -> None:
    """Or as the memory, or as the shared cache, and a barrier each time."""
    board = Board.load("pi4")
    parts = [
        "part 0 0 0 1 0 0 0 0 0 0 0\nran 0 30000",
        "part 0 0 1 1 0 0 0 0 0 0 0\nran 0 45000",
        "part 0 1 0 1 0 0 0 0 6000 0 3000",
        "part 0 1 1 1 0 0 0 0 8000 0 0",
        "part 0 2 0 2 0 5000 0 4000 0 0 0",
        "part 0 2 1 2 0 8000 0 0 0 0 0",
    ]
    slowest, memory, shared = times_of_parts(tmp_path, board, parts)
    barrier = BARRIER_US * 1e3 * board.clock_ghz
    assert slowest == pytest.approx(500 + 45000 + barrier, rel=1e-6)
    line = 64 / (board.memory_gbs / board.clock_ghz)
    assert memory == pytest.approx(17000 * line + barrier, rel=1e-6)
    # A line of the shared cache takes what its foreseen miss in the first one costs.
    near, far = board.caches
    assert (near.shared, far.shared) == (False, True)
    assert shared == pytest.approx(17000 * near.foreseen + 2 * barrier, rel=1e-6)


def test_one_thread_waits_for_the_memory_too(tmp_path: Path) -> None:
    """The Pi 3's core would fetch lines faster than its memory has them."""
    board = Board.load("pi3")
    e = Estimate(100, 50.0, 9000 * board.caches[-1].foreseen, 0.0, 0, 0, 9000)
    line = 64 / (board.memory_gbs / board.clock_ghz)
    assert cycles_alone(e, board) == pytest.approx(9000 * line)
    assert cycles_alone(e, structs.replace(board, memory_gbs=0.0)) == e.cycles
    assert cycles_alone(replace(e, memory_lines=0), board) == e.cycles


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "no inference was marked"),
        (
            "target aarch64\ninference\nbucket 0 -1 0\nran 3 5\n",
            "1 blocks lack their code",
        ),
        ("target aarch64\ninference\nbucket 0\n", "ValueError"),
        ("hello\n", "unexpected line"),
        ("inference\nblock 0 1 zz\n", "ValueError"),
    ],
)
def test_counts_that_are_none(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "counts").write_text(text)
    with pytest.raises(ToolError) as e:
        Counts.read(tmp_path / "counts")
    assert what in e.value.what
    assert "qemu-aarch64 --version" in (e.value.hint or "")
    with pytest.raises(ToolError, match="FileNotFoundError"):
        Counts.read(tmp_path / "nothing")


# ---- counting under QEMU
# --------------------------------------------------------------------------------------

MACROS = """
.macro mark number
    mov x8, #57
    ldr x0, =\\number
    svc #0
.endm
.macro loop times
    mov x1, #\\times
1:  subs x1, x1, #1
    b.ne 1b
.endm
.macro walk bytes
    ldr x1, =buffer
    ldr x2, =\\bytes
1:  ldr x3, [x1], #64
    subs x2, x2, #64
    b.ne 1b
.endm
.macro fill bytes
    ldr x1, =buffer
    ldr x2, =\\bytes
1:  str x3, [x1], #64
    subs x2, x2, #64
    b.ne 1b
.endm
.macro store
    ldr x1, =buffer
    str x1, [x1]
.endm
"""
BUFFER = """
    mov x8, #93
    mov x0, #0
    svc #0
.bss
.balign 4096
buffer: .zero 262144
"""
PROGRAM = f"""{MACROS}
.globl _start
_start:
    loop 5000
    mark -771000
    walk 262144
    mark -771001
    loop 100
    mark -771100
    mark -780000
    loop 1000
    mark -780001
    loop 3000
    mark -780002
    walk 16384
    walk 16384
    mark -780003
    walk 262144
    mark -780004
    fill 262144
    mark -771101
    loop 2000
    mark -780000
    mark -779001
    store
    loop 700
    walk 131072
    mark -779002
    loop 900
    walk 131072
    mark -779003
    loop 900
    walk 131072
    mark -779000
    mark -780001
    mark -779001
    walk 64
    mark -779002
    walk 16384
    mark -779000
    mark -779001
    walk 64
    mark -779002
    store
    walk 16384
    mark -779000
    mark -780002
    walk 64
    mark -780003
    mark -771002
    loop 5000
{BUFFER}"""
UNMARKED = f"""{MACROS}
.globl _start
_start:
    mark -771000
    walk 262144
    mark -771001
    loop 5000
    walk 262144
    mark -771002
{BUFFER}"""


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that marks two segments, the first with four ops."""
    folder = tmp_path_factory.mktemp("marked")
    (folder / "a.S").write_text(PROGRAM)
    zig("-nostdlib", "-static", folder / "a.S", "-o", folder / "a.out")
    return folder / "a.out"


def run_counted(
    program: Path,
    out: Path,
    board: Board,
    emulator: str = "qemu-aarch64",
    caches: bool = True,
    every: int = 0,
) -> Counts:
    levels = board.caches if caches else ()
    option = plugin_option(block_count_plugin(), out, levels, every)
    subprocess.run(
        [emulator, "-plugin", option, program],
        check=True,
        stdout=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"]},
    )
    return Counts.read(out)


@pytest.mark.arm
@pytest.mark.cc
def test_counts_by_segment_and_op(marked: Path, tmp_path: Path) -> None:
    counts = run_counted(marked, tmp_path / "a", Board.load("pi4"))
    assert counts.target == "aarch64"
    assert len(counts.inferences) == 1
    places = counts.inferences[0]
    assert list(places) == [
        (-1, -1),
        (0, -1),
        (0, 0),
        (0, 1),
        (0, 2),
        (0, 3),
        (0, 4),
        (1, -1),
        (1, 0),
        (1, 1),
        (1, 2),
        (1, 3),
    ]
    n = {p: counts.instructions(p) for p in places}
    assert n[0, 1] - n[0, 0] == 2 * 2000
    assert n[1, -1] - n[0, 0] == 2 * 1000
    assert n[0, 0] - n[-1, -1] == 2 * 900
    assert 2000 < n[0, 0] < 2010
    assert counts.instructions((5, 5)) == 0
    assert all(b.mispredicted <= 3 for b in places.values())
    run_counted(marked, tmp_path / "b", Board.load("pi4"))
    assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()


@pytest.mark.arm
@pytest.mark.cc
def test_misses_by_op(marked: Path, tmp_path: Path) -> None:
    counts = run_counted(marked, tmp_path / "a", Board.load("pi4"))
    lines = {op: counts.inferences[0][0, op].lines for op in (0, 2, 3)}
    assert lines[0] == ((0, 0, 0), (0, 0, 0))
    # 256 lines once, then from the first cache; 4096 that only the second has, seen
    # coming but for the first ones.
    assert 250 < sum(lines[2][0]) <= 257
    assert sum(lines[3][0]) >= 4096 - 256
    assert lines[3][0][1] <= 4
    assert lines[3][1] == (0, 0, 0)
    plain = run_counted(marked, tmp_path / "b", Board.load("pi4"), caches=False)
    assert plain.inferences[0][0, 3].lines == ()
    assert plain.instructions((0, 3)) == counts.instructions((0, 3))


@pytest.mark.arm
@pytest.mark.cc
def test_parts_have_caches_of_their_own_and_share_the_last(
    marked: Path, tmp_path: Path
) -> None:
    board = Board.load("pi4")
    counts = run_counted(marked, tmp_path / "a", board)
    same, twice = (counts.parts[0][1, op] for op in (0, 1))
    assert [part.times for part in same] == [1, 1, 1]
    assert [part.times for part in twice] == [2, 2]
    # No core finds what another one has fetched, but the shared cache has it.
    lines = 131072 // 64
    lacked = [sum(part.lines[0][:2]) for part in same]
    assert lacked == pytest.approx([lines] * 3, abs=8)
    assert [part.lines[1] for part in same] == [(0, 0, 0)] * 3
    # The buffer's first line, and its address: both are still there the second time.
    first, second = twice
    assert sum(first.lines[0]) <= 2
    assert sum(second.lines[0]) == pytest.approx(16384 // 64, abs=2)
    # Core 1 has stored to that line since, core 0 has stored nothing.
    assert sum(counts.inferences[0][1, 2].lines[0]) == 1


@pytest.mark.arm
@pytest.mark.cc
def test_parts_go_in_step_through_the_shared_cache(
    marked: Path, tmp_path: Path
) -> None:
    """A buffer of 128 KiB that three parts walk through at once comes from memory once,
    though a cache of 64 KiB forgets it before one part is through.
    """
    tiny = Cache(1, 2, 1.0, 2.0)
    common = Cache(64, 16, 1.0, 2.0, shared=True)
    board = structs.replace(Board.load("pi4"), caches=(tiny, common))
    counts = run_counted(marked, tmp_path / "a", board)
    lines = 131072 // 64
    parts = counts.parts[0][1, 0]
    assert [sum(p.lines[0][:2]) for p in parts] == pytest.approx([lines] * 3, abs=8)
    # Core 0 has filled the buffer: what its own cache of 1 KiB has of it comes from there.
    kept = 1024 // 64
    misses = sum(sum(p.lines[1][:2]) for p in parts)
    assert misses == pytest.approx(lines - kept, abs=4)


@pytest.mark.arm
@pytest.mark.cc
def test_changed_lines_are_written_when_they_make_room(
    marked: Path, tmp_path: Path
) -> None:
    """Of a buffer of 256 KiB that is filled, all is written but what the caches hold."""
    tiny = Cache(1, 2, 1.0, 2.0)
    common = Cache(64, 16, 1.0, 2.0, shared=True)
    board = structs.replace(Board.load("pi4"), caches=(tiny, common))
    counts = run_counted(marked, tmp_path / "a", board)
    read, filled = (counts.inferences[0][0, op].lines for op in (3, 4))
    lines = 262144 // 64
    assert [level[2] for level in read] == [0, 0]
    assert filled[0][2] == pytest.approx(lines - 1024 // 64, abs=4)
    assert filled[1][2] == pytest.approx(lines - 65536 // 64, abs=20)


@pytest.mark.arm
@pytest.mark.cc
def test_windows_of_a_program_without_ops(tmp_path: Path) -> None:
    """A loop of 10,000 instructions, then one of 3 a line: each window has its own."""
    (tmp_path / "a.S").write_text(UNMARKED)
    zig("-nostdlib", "-static", tmp_path / "a.S", "-o", tmp_path / "a.out")
    board = Board.load("pi4")
    whole = run_counted(tmp_path / "a.out", tmp_path / "whole", board)
    counts = run_counted(tmp_path / "a.out", tmp_path / "a", board, every=1000)
    windows = counts.inferences[0]
    n = [counts.instructions(place) for place in windows]
    assert list(windows) == [(-1, op) for op in range(-1, 22)]
    assert n[:-1] == pytest.approx([1000] * 22, abs=5)
    assert sum(n) == whole.instructions((-1, -1))
    # What the second cache gives, of the whole inference and of each window.
    lines = [sum(bucket.lines[0]) for bucket in windows.values()]
    assert sum(lines) == sum(whole.inferences[0][-1, -1].lines[0])
    assert max(lines[:9]) <= 2
    assert lines[12:-1] == pytest.approx([1000 // 3] * 10, abs=3)


@pytest.mark.arm
@pytest.mark.cc
def test_estimates_of_counted_ops(marked: Path, tmp_path: Path) -> None:
    found = {}
    for name in ("pi3", "pi4", "pi5"):
        board = Board.load(name)
        found[name] = estimate(
            run_counted(marked, tmp_path / name, board), board.core, board.caches
        )
        assert sum(e.unknown for e in found[name].values()) == 0
        assert found[name][0, 1].core == pytest.approx(3000, rel=0.02)  # a cycle a turn
    assert found["pi4"][0, 3].memory > 4096 * 3 * 0.9


@pytest.mark.arm
@pytest.mark.cc
def test_32_bit_programs_are_counted(bundle: Bundle, tmp_path: Path) -> None:
    program = tmp_path / "main"
    program.write_bytes(bundle.read(bundle.manifest.programs["linux-armv7"]))
    program.chmod(0o700)
    (tmp_path / WEIGHTS_FILE).write_bytes(
        bundle.read(bundle.manifest.weights["linux-armv7"])
    )
    counts = run_counted(
        program, tmp_path / "a", Board.load("pi4"), "qemu-arm", caches=False
    )
    assert counts.target == "arm"
    assert all(50 < counts.instructions((s, -1)) < 5000 for s in range(3))


@pytest.mark.arm
@pytest.mark.cc
@pytest.mark.parametrize(
    "argument",
    [
        "caches=32",
        "caches=0:4",
        "caches=32:0",
        "caches=8:2+8:2+8:2+8:2",
        "caches=8:2:shared+8:2",
        "caches=8:2:common",
        "every=1000",
        "caches=8:2,every=0",
        "what=3",
    ],
)
def test_the_plugin_refuses_what_it_does_not_know(
    marked: Path, tmp_path: Path, argument: str
) -> None:
    option = f"{block_count_plugin()},out={tmp_path / 'a'},{argument}"
    done = subprocess.run(
        ["qemu-aarch64", "-plugin", option, marked], capture_output=True, text=True
    )
    assert done.returncode != 0
    assert "block_count: needs out=FILE" in done.stderr
