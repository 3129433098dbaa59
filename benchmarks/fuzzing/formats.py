"""Every kind of file and message that comes from outside: files to damage, how to damage
them, and what reads them.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.data_folder import MODELS, ROOT
from benchmarks.fuzzing.driver import LIMITS, Call, Limits, guarded, verb
from benchmarks.fuzzing.formats_beside import besides, damaged_beside, read_beside
from benchmarks.fuzzing.model_files import damaged_onnx, damaged_tflite
from benchmarks.fuzzing.mutations import flipped, odd, regrown, retyped

DIGITS = ROOT / "fixtures" / "digits"
Damage = Callable[[random.Random, bytes], bytes]
LARGEST_NETWORK = 5_000_000
"""Bytes of a network: larger ones are like it, and take longer."""
NETWORK_LIMITS = Limits(memory=1 << 30, seconds=60)


@dataclass(frozen=True)
class Format:
    """A kind of file or message.

    Attributes:
        wholes: returns files without damage
        damage: damages one
        read: writes one into a folder, and returns what reads it there
        limits: the bounds on memory and time
    """

    wholes: Callable[[], list[bytes]]
    damage: Damage
    read: Callable[[random.Random, bytes, Path], Call]
    limits: Limits = LIMITS


def _mixed(structured: Damage, share: float) -> Damage:
    """Return a damage that changes bytes alone in a share of the cases."""
    return lambda rng, data: (
        flipped(rng, data) if rng.random() < share else structured(rng, data)
    )


# ---- models


@cache
def onnx_files() -> list[bytes]:
    """Return ONNX's tests of single nodes, and the fixture for a fourth of the cases."""
    from onnx.backend.test.loader import load_model_tests

    # it computes what its tests are to give
    with warnings.catch_warnings(action="ignore"):
        nodes = [t.model for t in load_model_tests(kind="node")]
    small = [m.SerializeToString() for m in nodes if m.ByteSize() < 20_000]
    return [*small, *[(DIGITS / "digits.onnx").read_bytes()] * (len(small) // 3)]


@cache
def tflite_files() -> list[bytes]:
    """Return a file for each sample of an op that TFLite has, and a network."""
    import edgec.ops  # noqa: F401 (registers all operations)
    from edgec.emit.tflite import write_tflite
    from edgec.errors import EdgecError, InternalError
    from edgec.ir import OpDef
    from tests.emit.test_c import residual_int8
    from tests.harness import sample_graph

    found = []
    for kind in sorted(OpDef.registry):
        for sample in OpDef.registry[kind].samples():
            try:
                found.append(write_tflite(sample_graph(sample)))
            except (EdgecError, InternalError, AssertionError, KeyError):
                # TFLite has no such op or type
                continue
    return [*found, *[write_tflite(residual_int8())] * (len(found) // 3)]


@cache
def networks(suffix: str) -> list[bytes]:
    """Return the smaller model files of the data folder, or else the fixture's."""
    paths = sorted(MODELS.glob(f"*/*{suffix}"))
    files = [p.read_bytes() for p in paths if p.stat().st_size < LARGEST_NETWORK]
    if files:
        return files
    return (
        [(DIGITS / "digits.onnx").read_bytes()] if suffix == ".onnx" else tflite_files()
    )


def _model(suffix: str) -> Callable[[random.Random, bytes, Path], Call]:
    def read(rng: random.Random, data: bytes, folder: Path) -> Call:
        path = folder / f"m{suffix}"
        path.write_bytes(data)
        target = rng.choice(("host", "pi4+coral", "pi5"))
        if rng.random() < 0.02:
            return verb(
                "compile",
                path,
                "--cc",
                "gcc",
                "--allow-float",
                "-o",
                folder / "m.edgec",
            )
        more = rng.choice(
            ([], ["--json"], ["--html", folder / "m.html"], ["--allow-float"])
        )
        return verb("explain", path, "--target", target, *more)

    return read


def _compiled(rng: random.Random, data: bytes, folder: Path) -> Call:
    """Read what edgetpu_compiler wrote."""
    from edgec.errors import InputError
    from edgec.toolchain.edgetpu import compiled_file

    def call() -> None:
        try:
            outline = compiled_file.read(data)
            outline.ready(outline.left)
        except ValueError as e:
            raise InputError(str(e)) from e

    return guarded(call)


# ---- bundles and what they hold


@cache
def bundle() -> bytes:
    """Return a bundle of the fixture for this machine."""
    return _bundle_of()


@cache
def task_bundle() -> bytes:
    """Return a bundle of the fixture in int8, with preprocessing and a task."""
    with tempfile.TemporaryDirectory() as tmp:
        labels = Path(tmp) / "labels.txt"
        labels.write_text("\n".join(f"digit {i}" for i in range(10)))
        made_of = {"calibrate": DIGITS / "digits_calibration.npz", "quantize": "fast"}
        return _bundle_of(
            **made_of, labels=labels, task="classification", preprocess="0_1,gray"
        )


def _bundle_of(**options: Any) -> bytes:
    import edgec

    with tempfile.TemporaryDirectory() as tmp:
        out = Path(tmp) / "digits.edgec"
        return edgec.compile(
            DIGITS / "digits.onnx", output=out, cc="gcc", **options
        ).path.read_bytes()


def damaged_bundle(rng: random.Random, data: bytes) -> bytes:
    """Return a bundle with another manifest, or with other contents whose hashes are
    right; code stays as it is.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {i: archive.read(i) for i in archive.infolist()}
    manifest = json.loads(
        next(v for i, v in parts.items() if i.filename == "manifest.json")
    )
    if rng.random() < 0.6:
        files = manifest.pop("files")
        manifest = regrown(rng, manifest)
        if isinstance(manifest, dict):
            manifest["files"] = files if rng.random() < 0.8 else regrown(rng, files)
    else:
        info = rng.choice(
            [
                i
                for i in parts
                if not i.filename.startswith(("manifest", "bin/", "lib/"))
            ]
        )
        parts[info] = new = _content(rng, info.filename, parts[info])
        manifest["files"][info.filename] = {
            "sha256": hashlib.sha256(new).hexdigest(),
            "bytes": len(new),
        }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for i, content in parts.items():
            archive.writestr(
                i, json.dumps(manifest) if i.filename == "manifest.json" else content
            )
    return out.getvalue()


def _content(rng: random.Random, name: str, data: bytes) -> bytes:
    if name.endswith(".json") and rng.random() < 0.7:
        return json.dumps(regrown(rng, json.loads(data))).encode()
    if name.endswith(".tflite"):
        return damaged_tflite(rng, data)
    return retyped(rng, data) if rng.random() < 0.5 else flipped(rng, data)


def _bundle(rng: random.Random, data: bytes, folder: Path) -> Call:
    path = folder / "m.edgec"
    inputs = folder / "in.npz"
    path.write_bytes(data)
    np.savez(inputs, input=np.zeros((1, 1, 32, 32), np.float32))
    (folder / "a.png").write_bytes(samples()[4])
    match rng.randrange(8):
        case 0:
            return verb(
                "bench",
                path,
                "--runs",
                "3",
                "--json",
                folder / "b.json",
                "--html",
                folder / "b.html",
            )
        case 1 | 2:
            return verb(
                "package", path, "-o", folder, *rng.choice(([], ["--format", "tar"]))
            )
        case 3:
            return verb(
                "diff", DIGITS / "digits.onnx", path, "--inputs", inputs, "--cc", "gcc"
            )
        case 4 | 5:
            return verb(
                "run",
                path,
                "--input",
                folder / "a.png",
                *rng.choice(([], ["--json"], ["--raw"])),
            )
        case _:
            return verb("run", path, "--input", inputs, "--output", folder / "o.npz")


@cache
def reports() -> list[bytes]:
    """Return a report of edgec bench --json."""
    from edgec.cli.main import run_verb

    with tempfile.TemporaryDirectory() as tmp:
        (Path(tmp) / "m.edgec").write_bytes(bundle())
        assert (
            run_verb(
                [
                    "bench",
                    f"{tmp}/m.edgec",
                    "--runs",
                    "6",
                    "-q",
                    "--json",
                    f"{tmp}/b.json",
                ]
            )
            == 0
        )
        return [(Path(tmp) / "b.json").read_bytes()]


def _report(rng: random.Random, data: bytes, folder: Path) -> Call:
    (folder / "m.edgec").write_bytes(bundle())
    (folder / "b.json").write_bytes(data)
    return verb(
        "bench", folder / "m.edgec", "--runs", "3", "--compare", folder / "b.json"
    )


def _json(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.3:
        return retyped(rng, data)
    return json.dumps(regrown(rng, json.loads(data))).encode()


# ---- what a person writes

CONFIG = b"""[devices]
attic = "ssh://pi@attic.invalid"
lab = "serial:///dev/nosuch?baud=115200"
here = "local:"

[[bench]]
bundle = "m.edgec"
on = "here"
budgets = ["p95<=33ms", "rss<=800MB"]
max-regress = "5%"
runs = 3
seconds = 0.1
threads = 1
timeout = 2
json = "b.json"
"""
RECIPE = b"""seed = 3
within_db = 0.3
[[candidate]]
name = "a"
steps = ["minmax"]
[[candidate]]
name = "b"
steps = [{step = "ranges", method = "entropy"}, "bias"]
"""
URLS = (
    "ssh://[::1",
    "ssh://a b",
    "ssh://-oProxyCommand=x",
    "ssh://\\u0000",
    "ssh://a:b@c",
    "ssh://a:99999",
    "ssh://$(x)",
    "ssh://[fe80::1%25eth0]",
    "ssh:",
    "ssh://x@",
    "ssh://\\u202e",
    "serial://",
    "serial:///dev/no\\u0000",
    "serial:///",
    "serial:///dev/nosuch?baud=-1",
    "serial:///dev/nosuch?baud=1e9",
    "serial:///etc/passwd",
    "emulated:host",
    "local:x",
    "emulated:",
    "emulated:pi4/none",
    "emulated:../x",
    "nosuch:",
    "",
    ":",
    "local:c",
    "emulated:pi4\\u001b[31m",
)


def _config(rng: random.Random, data: bytes) -> bytes:
    if rng.random() < 0.3:
        url = rng.choice(URLS).encode()
        old = rng.choice((b"local:", b"ssh://pi@attic.invalid"))
        return data.replace(old, url)
    return retyped(rng, data)


def _toml(rng: random.Random, data: bytes, folder: Path) -> Call:
    if b"[[candidate]]" in data or data.startswith(b"seed"):
        (folder / "r.toml").write_bytes(data)
        made_of = (
            DIGITS / "digits.onnx",
            "--calibrate",
            DIGITS / "digits_calibration.npz",
        )
        return verb("explain", *made_of, "--quantize", folder / "r.toml")
    (folder / "m.edgec").write_bytes(bundle())
    (folder / "edgec.toml").write_bytes(data)
    match rng.randrange(3):
        case 0:
            return verb("devices")
        case 1:
            return verb("status", "--on", "here", "--timeout", "2")
        case _:
            return verb("bench", "--timeout", "2")


@cache
def samples() -> list[bytes]:
    """Return calibration data: arrays in several layouts, and photos."""
    rng = np.random.default_rng(0)
    found = [(DIGITS / "digits_calibration.npz").read_bytes()]
    for save in (np.savez, np.savez_compressed):
        file = io.BytesIO()
        save(file, input=rng.random((6, 1, 32, 32), np.float32))
        found.append(file.getvalue())
    file = io.BytesIO()
    np.savez(
        file,
        **{f"in{k}_0": rng.random((1, 1, 32, 32), np.float32) for k in range(4)},  # type: ignore[arg-type]
    )
    found.append(file.getvalue())
    pixels = Image.fromarray(rng.integers(0, 256, (16, 16, 3), np.uint8))
    for kind in ("png", "jpeg", "bmp", "webp", "ppm"):
        file = io.BytesIO()
        pixels.save(file, kind)
        found.append(file.getvalue())
    return found


def damaged_samples(rng: random.Random, data: bytes) -> bytes:
    """Return calibration data with another header or other elements."""
    if data[:2] != b"PK":
        return flipped(rng, data)
    with np.load(io.BytesIO(data)) as archive:
        arrays = dict(archive)
    name = rng.choice(list(arrays))
    array = arrays[name]
    match rng.randrange(7):
        case 0:
            array.flat[rng.randrange(array.size)] = rng.choice(
                (np.nan, np.inf, -np.inf, 3.4e38, 1e-45)
            )
        case 1:
            arrays[name] = array.astype(
                rng.choice(
                    ("float64", "float16", "int8", "uint8", "bool", "complex64", "U5")
                )
            )
        case 2:
            arrays[name] = array.reshape(
                rng.choice((array.shape[::-1], (array.size,), (1, *array.shape)))
            )
        case 3:
            arrays[
                str(odd(rng, ""))
                .replace("\0", "")
                .encode(errors="replace")
                .decode()[:60_000]
            ] = arrays.pop(name)
        case 4:
            arrays[name] = (
                array[:0] if rng.random() < 0.5 else array.astype(np.float64) * 1e300
            )
        case 5:
            arrays[name] = np.full_like(array, rng.choice((0.0, 3e38, -3e38, 1e-45)))
        case _:
            arrays[f"in{rng.choice((0, 7, 10**9))}_{rng.choice((0, 1, 10**9))}"] = array
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for key, value in arrays.items():
            file = io.BytesIO()
            np.save(file, value)
            content = file.getvalue()
            head = retyped(rng, content[:128]) if rng.random() < 0.3 else content[:128]
            archive.writestr(f"{key}.npy", head + content[128:])
    return out.getvalue()


def _samples(rng: random.Random, data: bytes, folder: Path) -> Call:
    path = folder / "data.npz"
    if data[:2] != b"PK" and rng.random() < 0.9:
        (folder / "photos").mkdir(exist_ok=True)
        path = (
            folder
            / "photos"
            / f"a{rng.choice(('.png', '.jpg', '.bmp', '.webp', '.ppm'))}"
        )
    path.write_bytes(data)
    given = path if path.suffix == ".npz" or rng.random() < 0.5 else path.parent
    if rng.random() < 0.2:
        (folder / "m.edgec").write_bytes(bundle())
        return verb(
            "run", folder / "m.edgec", "--input", path, "--output", folder / "o.npz"
        )
    return verb(
        "explain",
        DIGITS / "digits.onnx",
        "--calibrate",
        given,
        "--quantize",
        "fast",
        "--target",
        "pi4+coral",
    )


# ---- text of programs, and edgec's own


@cache
def logs() -> list[bytes]:
    """Return logs in the layouts of all versions of edgetpu_compiler, and failures."""
    from tests.toolchain.edgetpu_log_text import V1, V2_1, V15, V16, log_file, screen

    rows = [{"op": "CONV_2D", "count": 35, "status": "Mapped to Edge TPU"}]
    rows.append(
        {
            "op": "SOFTMAX",
            "count": 1,
            "status": "Operation is otherwise supported, but not mapped",
        }
    )
    record = {
        "input": "a.tflite",
        "output": "a_edgetpu.tflite",
        "input_size": "3.17MiB",
        "output_size": "3.02MiB",
        "onchip_used": "3.33MiB",
        "onchip_remaining": "4.19MiB",
        "offchip_streamed": "64.00B",
        "n_subgraphs": 1,
        "n_ops": 36,
        "n_tpu": 35,
        "n_cpu": 1,
        "rows": rows,
        "compile_ms": 542,
    }
    found = []
    for version in (V1, V2_1, V15, V16):
        one = {**record, "compiler_version": version}
        found += [
            screen([one]),
            screen([one, {**one, "input": "b.tflite"}]),
            log_file(one),
        ]
    lines = (
        "Didn't find op for builtin opcode 'CONV_2D' version '5'",
        "Node number 3 (ADD) failed to prepare",
        "Invalid model: a.tflite\n Model not quantized",
        "Compilation failed: x",
        "Compilation timeout.",
        "Aborted",
    )
    return [
        t.encode()
        for t in (
            *found,
            *(f"Edge TPU Compiler version {V16}\n{line}\n" for line in lines),
        )
    ]


def _log(rng: random.Random, data: bytes, folder: Path) -> Call:
    from edgec.toolchain.edgetpu.log import failed, parse_block, parse_logs

    text = data.decode("utf-8", "replace")

    def call() -> None:
        for log in (*parse_logs(text).values(), parse_block(text), failed(text)):
            print(
                log.failure.text
                if log.failure
                else [f"{r.op} {r.status}" for r in log.rows][:3]
            )

    return guarded(call)


@cache
def graphs() -> list[bytes]:
    """Return the text form of a graph for some samples of each op."""
    import edgec.ops  # noqa: F401 (registers all operations)
    from edgec.ir import OpDef, print_graph
    from tests.harness import sample_graph

    every = [
        sample_graph(s)
        for kind in sorted(OpDef.registry)
        for s in islice(OpDef.registry[kind].samples(), 3)
    ]
    return [print_graph(g).encode() for g in every]


def _graph(rng: random.Random, data: bytes, folder: Path) -> Call:
    from edgec.errors import InputError
    from edgec.ir import parse, print_graph, verify
    from edgec.ir.text import ParseError
    from edgec.ir.verify import VerifyError

    def call() -> None:
        try:
            graph = parse(data.decode("utf-8", "replace"))
            verify(graph, "imported")
        except (ParseError, VerifyError) as e:
            raise InputError(str(e)) from e
        print_graph(parse(print_graph(graph)))

    return guarded(call)


# ---- the protocol


def _messages(rng: random.Random, data: bytes, folder: Path) -> Call:
    """Flash over a line on which one end sends what the other does not expect."""
    from edgec_devices import protocol
    from edgec_runtime.device_end import agent, wire

    from tests.devices import faults

    device_lies = rng.random() < 0.5
    chance = rng.choice((0.05, 0.3, 1.0))

    def lying(head: dict[str, object], blob: bytes = b"") -> bytes:
        if rng.random() < chance:
            head = regrown(rng, head)
            blob = flipped(rng, blob) if rng.random() < 0.3 else blob
        whole = wire.pack(head, blob)
        return flipped(rng, whole) if rng.random() < 0.1 * chance else whole

    def call() -> None:
        recipe = faults.make_bundle(
            folder / "m.edgec", faults.fake_program(6000, rng), rng.randbytes(3000)
        )
        world = faults.World(folder / "root", rng)
        world.boot()
        vars(agent if device_lies else protocol)["pack"] = lying
        faults.flash_over(
            faults.SimStream(world, faults.Faults(), faults.Faults()), recipe
        )

    return guarded(call)


FORMATS: Mapping[str, Format] = {
    "network_onnx": Format(
        partial(networks, ".onnx"),
        _mixed(damaged_onnx, 0.15),
        _model(".onnx"),
        NETWORK_LIMITS,
    ),
    "network_tflite": Format(
        partial(networks, ".tflite"),
        _mixed(damaged_tflite, 0.15),
        _model(".tflite"),
        NETWORK_LIMITS,
    ),
    "onnx": Format(onnx_files, _mixed(damaged_onnx, 0.15), _model(".onnx")),
    "tflite": Format(tflite_files, _mixed(damaged_tflite, 0.15), _model(".tflite")),
    "compiled": Format(tflite_files, _mixed(damaged_tflite, 0.5), _compiled),
    "edgec": Format(
        lambda: [bundle(), task_bundle()], _mixed(damaged_bundle, 0.2), _bundle
    ),
    "bench": Format(reports, _json, _report),
    "toml": Format(lambda: [CONFIG, CONFIG, RECIPE], _config, _toml),
    "samples": Format(samples, _mixed(damaged_samples, 0.4), _samples),
    "log": Format(logs, retyped, _log),
    "ir": Format(graphs, retyped, _graph),
    "beside": Format(besides, damaged_beside, read_beside),
    "protocol": Format(lambda: [b""], lambda rng, data: data, _messages),
}
