"""edgec's compiled code beside LiteRT (XNNPACK), onnxruntime and OpenVINO on this
machine, in one run.

Per model one process for each engine (benchmarks/host_peer.py); they are asked in
turn, forwards and backwards, so that a slow phase of the machine hits all. One thread:
CPU time of the process. Two: wall time. The figure is the median of a round, and of the
rounds the best. Only ratios mean something, and those of one run alone.

    all     what the processor has; on some, AMX, which edgec does not use
    vnni    AVX-512 VNNI: AMX and half floats are hidden
    avx2    AVX-512 is hidden too

Hidden by CPUID faults (cpu_level.c), for every engine alike and for edgec, which
chooses its kernels by CPUID too. What glibc chose before (memcpy) is not hidden. An
engine whose outputs are far from those that the data folder has for its file (cosine
under 0.97 of int8, 0.999 of float; or as many labels) is marked ≠ and never the best:
some int8 kernels saturate on AVX2.

onnxruntime reads no .tflite: it runs the ONNX file of the same network where the data
folder has one, as OpenVINO does with a .tflite that it refuses. LiteRT runs the .tflite
twin of an ONNX file, where there is one. On the screen and in build/bench-host.json;
needs the data folder (EDGEC_SHARED, default ../shared).

    python -m benchmarks.bench_host [--models a,b] [--levels all,vnni,avx2] [--threads 1,2]
        [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import statistics
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.networks import NETWORKS

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("EDGEC_SHARED") or ROOT.parent / "shared")
WORK = ROOT / "build" / "bench-host"
LEVELS = ("all", "vnni", "avx2")
PEERS = ("litert", "onnxruntime", "openvino")
ENGINES = ("edgec", *PEERS)
PACKAGES = {
    "litert": "ai-edge-litert",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
}
LIMIT_S = 900  # of one answer
ALIKE = {"int8": 0.97, "float": 0.999}


@dataclass
class Row:
    """One model at one level with so many threads. ms by engine; why an engine has
    none, or a note on what it ran.
    """

    model: str
    level: str
    threads: int
    ms: dict[str, float] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "int8" if self.model.endswith(("_i8", "_u8")) else "float"

    def ratio(self, peer: str) -> float:
        """How many times as fast as a peer edgec is; nan where one of them has no
        figure.
        """
        return self.ms.get(peer, math.nan) / self.ms.get("edgec", math.nan)

    @property
    def best(self) -> float:
        """The same of the fastest peer whose result is right."""
        right = [self.ratio(p) for p in PEERS if p in self.ms and p not in self.differs]
        return min(right, default=math.nan)


# ---- files
# --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A model: for each engine the files that it may read with their inputs, the
    likeliest first; why it has none.
    """

    name: str
    files: dict[str, list[tuple[Path, Path]]]
    left_out: dict[str, str]


def prepare(name: str, entries: dict[str, Any], threads: int) -> Case:
    """Compiles the bundle, looks for the twin."""
    files: dict[str, list[tuple[Path, Path]]] = {engine: [] for engine in ENGINES}
    left_out = dict[str, str]()
    for one in NETWORKS.get(name, (name,)):
        path = SHARED / "models" / entries[one]["file"]
        data = _inputs(one, path.parent / "ref.npz")
        for engine in (
            "litert" if path.suffix == ".tflite" else "onnxruntime",
            "openvino",
        ):
            files[engine].append((path, data))
        if not files["edgec"]:
            bundle = WORK / f"{name}-{threads}.edgec"
            files["edgec"].append((bundle, data))
            try:
                _compile(path, bundle, threads)
            except RuntimeError as e:
                left_out["edgec"] = str(e)
    left_out |= {
        engine: "there is no file of it that this engine reads"
        for engine in ENGINES
        if not files[engine]
    }
    return Case(name, files, left_out)


def _inputs(name: str, reference: Path) -> Path:
    """The first photo's tensors, in the model's order."""
    path = WORK / f"{name}.npz"
    with np.load(reference) as data:
        np.savez(
            path, *[data[key] for key in sorted(data.files) if key.startswith("in0_")]
        )
    return path


def _run(*command: str) -> None:
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S
    )
    if done.returncode:
        raise RuntimeError(" ".join(done.stderr.split())[:300])


def _compile(model: Path, bundle: Path, threads: int) -> None:
    options = [] if threads == 1 else ["--threads", str(threads)]
    command = (
        "compile",
        str(model),
        "--target",
        "host",
        "--allow-float",
        "-o",
        str(bundle),
        "-q",
        *options,
    )
    _run(sys.executable, "-m", "edgec", *command)


# ---- measuring
# --------------------------------------------------------------------------------------


class Child:
    """An engine in its process, ready to be asked."""

    def __init__(
        self, engine: str, model: Path, inputs: Path, level: str, threads: int
    ) -> None:
        self.model = inputs.stem
        self.outputs = WORK / f"{inputs.stem}-{engine}-out.npz"
        environment = dict(os.environ)
        if level != "all":
            environment |= {
                "LD_PRELOAD": str(WORK / "cpu_level.so"),
                "CPU_LEVEL": level,
            }
        command = [
            sys.executable,
            "-m",
            "benchmarks.host_peer",
            engine,
            str(model),
            str(threads),
        ]
        self._errors = (WORK / f"{inputs.stem}-{engine}.log").open("w+")
        self._process = subprocess.Popen(
            [*command, str(inputs), str(self.outputs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
            cwd=ROOT,
            env=environment,
        )
        try:
            self._answer("ready")
        except RuntimeError:
            self.close()
            raise

    def _answer(self, start: str) -> str:
        """The next line that begins so: engines print lines of their own."""
        assert self._process.stdout is not None
        while select.select([self._process.stdout], [], [], LIMIT_S)[0]:
            line = self._process.stdout.readline()
            if line.startswith(start):
                return line
            if not line:
                break
        self._errors.seek(0)
        said = [line.strip() for line in self._errors if line.strip()] or ["no answer"]
        raise RuntimeError(said[-1][:300])

    def ask(self, seconds: float) -> dict[str, float]:
        """Medians of inferences for as long."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        found: dict[str, float] = json.loads(self._answer("{"))
        return found

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def measure(case: Case, level: str, threads: int, rounds: int, seconds: float) -> Row:
    """All engines in turn."""
    row = Row(case.name, level, threads, left_out=dict(case.left_out))
    children = dict[str, Child]()
    try:
        for engine in ENGINES:
            for model, inputs in (
                case.files[engine] if engine not in row.left_out else ()
            ):
                try:
                    children[engine] = Child(engine, model, inputs, level, threads)
                    break
                except RuntimeError as e:
                    row.left_out[engine] = f"{model.name}: {e}"
        found: dict[str, list[float]] = {engine: [] for engine in children}
        for i in range(rounds):
            for engine in list(children)[:: -1 if i % 2 else 1]:
                found[engine].append(
                    children[engine].ask(seconds)["cpu" if threads == 1 else "wall"]
                )
        row.ms = {engine: min(ms) for engine, ms in found.items()}
        row.differs = list(
            _differing(row, {e: (c.model, c.outputs) for e, c in children.items()})
        )
    finally:
        for child in children.values():
            child.close()
    return row


def _differing(row: Row, outputs: dict[str, tuple[str, Path]]) -> Iterator[str]:
    """Engines whose outputs are not near those that the data folder has for the file
    that they read.
    """
    for engine, (name, path) in outputs.items():
        with (
            np.load(path) as data,
            np.load(SHARED / "models" / name / "ref.npz") as reference,
        ):
            law = [
                reference[key]
                for key in sorted(reference.files)
                if key.startswith("out0_")
            ]
            if any(
                _likeness(a, data[f"arr_{i}"]) < ALIKE[row.kind]
                for i, a in enumerate(law)
            ):
                yield engine


def _likeness(a: Any, b: Any) -> float:
    """The cosine; of labels the share that agree."""
    if a.shape != b.shape:
        return 0.0
    if a.dtype.kind in "iu" and a.dtype.itemsize > 1:
        return float((a == b).mean())
    x, y = (array.astype(np.float64).reshape(-1) for array in (a, b))
    return float(x @ y / (np.linalg.norm(x) * np.linalg.norm(y) or 1.0))


# ---- printing
# --------------------------------------------------------------------------------------


def header() -> Iterator[str]:
    """Of a table: Markdown."""
    yield (
        "| model | "
        + " | ".join(f"{p} ms" for p in PEERS)
        + " | edgec ms | x LiteRT | x best |"
    )
    yield "|---" * (len(PEERS) + 4) + "|"


def line(row: Row) -> str:
    """One model. Ratios above 1: edgec is faster."""
    cells = [_ms(row, e) for e in (*PEERS, "edgec")]
    return (
        f"| {row.model} | "
        + " | ".join([*cells, _times(row.ratio("litert")), _times(row.best)])
        + " |"
    )


def means(rows: Sequence[Row]) -> Iterator[str]:
    """Geometric means, of those models that both engines run."""
    for kind in ("int8", "float"):
        some = [r for r in rows if r.kind == kind]
        if some:
            to_litert, to_best = (
                _times(_mean(v))
                for v in ([r.ratio("litert") for r in some], [r.best for r in some])
            )
            yield (
                f"| **geo-mean {kind}** |"
                + " |" * (len(PEERS) + 1)
                + f" **{to_litert}** | **{to_best}** |"
            )


def _ms(row: Row, engine: str) -> str:
    if engine in row.ms:
        return f"{row.ms[engine]:.3f}{' ≠' if engine in row.differs else ''}"
    return "–"


def _times(ratio: float) -> str:
    return "–" if math.isnan(ratio) else f"{ratio:.2f}"


def _mean(ratios: Iterable[float]) -> float:
    known = [r for r in ratios if not math.isnan(r)]
    return statistics.geometric_mean(known) if known else math.nan


def measure_all(
    levels: Sequence[str], cases: dict[int, list[Case]], rounds: int, seconds: float
) -> Iterator[Row]:
    """Every model at every level with every number of threads, printed as they come."""
    for level in levels:
        for threads, some in cases.items():
            print(
                f"\n{level}, {threads} thread{'s' * (threads > 1)}\n",
                *header(),
                sep="\n",
                flush=True,
            )
            rows = []
            for case in some:
                rows.append(measure(case, level, threads, rounds, seconds))
                print(line(rows[-1]), flush=True)
            print(*means(rows), sep="\n", flush=True)
            yield from rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--levels", default=",".join(LEVELS))
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--seconds", type=float, default=0.2, help="of a round, for each engine"
    )
    o = parser.parse_args()
    if not (SHARED / "models").is_dir():
        sys.exit(f"no data folder at {SHARED} (set EDGEC_SHARED)")
    levels = o.levels.split(",")
    if (
        levels != ["all"]
        and "cpuid_fault" not in Path("/proc/cpuinfo").read_text().split()
    ):
        sys.exit(
            "this processor cannot hide instructions (no cpuid_fault in "
            "/proc/cpuinfo): give --levels all"
        )
    entries = {
        m["name"]: m for m in json.loads((SHARED / "models" / "index.json").read_text())
    }
    WORK.mkdir(parents=True, exist_ok=True)
    shim = Path(__file__).with_name("cpu_level.c")
    _run(
        "cc",
        "-O2",
        "-shared",
        "-fPIC",
        str(shim),
        "-o",
        str(WORK / "cpu_level.so"),
        "-ldl",
    )
    counts = [int(n) for n in o.threads.split(",")]
    cases = {
        n: [prepare(name, entries, n) for name in o.models.split(",")] for n in counts
    }
    print(", ".join(f"{p} {version(PACKAGES[p])}" for p in PEERS), flush=True)
    rows = list(measure_all(levels, cases, o.rounds, o.seconds))
    for text in dict.fromkeys(
        f"- {r.model}, {e}: {why}" for r in rows for e, why in r.left_out.items()
    ):
        print(text)
    path = ROOT / "build" / "bench-host.json"
    data = [
        {**asdict(r), "kind": r.kind, "to_litert": r.ratio("litert"), "to_best": r.best}
        for r in rows
    ]
    path.write_text(json.dumps(data, indent=1) + "\n")
    print(f"\nwritten to {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
