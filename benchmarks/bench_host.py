"""edgec's compiled code beside LiteRT (XNNPACK), onnxruntime and OpenVINO on this machine.

Each engine has a process of its own (host_peer.py); the processes take turns, forwards and
backwards, so that a slow phase of the machine hits all of them. With one thread the time
is the CPU time of the process, with more it is wall time: the median of a round, and of
the rounds the least. Only ratios within one run mean something.

LiteRT reads the .tflite file of a network, onnxruntime its ONNX file, and OpenVINO the ONNX
file if there is one. An engine whose outputs are far from the data folder's references (by LIKENESS) is marked with ≠ and
is never the best: some int8 kernels saturate on AVX2. Markdown on the screen,
build/bench-host.json; needs the data folder.

    python -m benchmarks.bench_host [--models a,b] [--threads 1,2] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import math
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from benchmarks.data_folder import BUILD, MODELS, ROOT, model_file
from benchmarks.networks import NETWORKS
from benchmarks.tables import line, markdown, names, write_json
from edgec.ir import Array
from edgec.measure.agreement import cosine

WORK = BUILD / "bench-host"
PACKAGES = {
    "litert": "ai-edge-litert",
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
}
PEERS = tuple(PACKAGES)
ENGINES = ("edgec", *PEERS)
LIMIT_S = 900
"""Seconds that an answer may take."""
LIKENESS = {"int8": 0.97, "float": 0.999}
"""The least cosine of an output and its reference, or share of equal labels."""
HEADS = ("model", *(f"{p} ms" for p in PEERS), "edgec ms", "× LiteRT", "× best")


@dataclass
class Row:
    """One model with a number of threads.

    Attributes:
        model: the model's name
        threads: the number of threads
        ms: the milliseconds of an inference by engine
        differs: the engines with other outputs than the reference
        failures: why an engine has no time
    """

    model: str
    threads: int
    ms: dict[str, float] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """The kind of the model: int8 or float."""
        return "int8" if self.model.endswith(("_i8", "_u8")) else "float"

    def ratio(self, peer: str) -> float:
        """Return the time of a peer by edgec's; NaN if one of them has none."""
        return self.ms.get(peer, math.nan) / self.ms.get("edgec", math.nan)

    @property
    def best(self) -> float:
        """The ratio of the fastest peer whose outputs are right."""
        peers = [p for p in PEERS if p in self.ms and p not in self.differs]
        return min((self.ratio(p) for p in peers), default=math.nan)

    def cells(self) -> list[str]:
        """Return the cells of the table."""
        times = []
        for engine in (*PEERS, "edgec"):
            mark = " ≠" if engine in self.differs else ""
            ms = self.ms.get(engine)
            times.append("–" if ms is None else f"{ms:.3f}{mark}")
        return [self.model, *times, _ratio(self.ratio("litert")), _ratio(self.best)]


def _ratio(ratio: float) -> str:
    return "–" if math.isnan(ratio) else f"{ratio:.2f}"


def _run(*command: str | Path) -> None:
    words = [str(word) for word in command]
    process = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S
    )
    if process.returncode:
        raise RuntimeError(" ".join(process.stderr.split())[:300])


def files_of(model: str, threads: int) -> dict[str, tuple[str, Path]]:
    """Return for each engine the file that it reads, and that file's name in the data
    folder; edgec's is compiled.
    """
    files: dict[str, tuple[str, Path]] = {}
    for name in NETWORKS.get(model, (model,)):
        path = model_file(name)
        reader = "onnxruntime" if path.suffix == ".onnx" else "litert"
        for engine in (reader, "openvino"):
            files[engine] = (name, path)
        if "edgec" not in files:
            bundle = WORK / f"{model}-{threads}.edgec"
            options = ("--target", "host", "--allow-float", "--threads", str(threads))
            command = ("-m", "edgec", "compile", path, *options, "-o", bundle, "-q")
            _run(sys.executable, *command)
            files["edgec"] = (name, bundle)
    return files


class Engine:
    """A process that runs one model with one engine.

    Args:
        engine: the engine
        name: the file's name in the data folder
        model: the file
        threads: the number of threads

    Raises RuntimeError if the engine cannot run the model.
    """

    def __init__(self, engine: str, name: str, model: Path, threads: int) -> None:
        with np.load(MODELS / name / "ref.npz") as data:
            arrays = dict(data)
        inputs = WORK / f"{name}-in.npz"
        np.savez(inputs, *(arrays[n] for n in sorted(arrays) if n.startswith("in0_")))
        outputs = sorted(n for n in arrays if n.startswith("out0_"))
        self._references = [arrays[n] for n in outputs]
        self._outputs = WORK / f"{name}-{engine}-out.npz"
        self._errors = (WORK / f"{name}-{engine}.log").open("w+")
        words = [engine, model, threads, inputs, self._outputs]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.host_peer", *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            bufsize=1,
            cwd=ROOT,
        )
        try:
            self._answer("ready")
        except RuntimeError:
            self.close()
            raise

    def _answer(self, start: str) -> str:
        """Return the next line that begins so: engines print lines of their own."""
        assert self._process.stdout is not None
        while select.select([self._process.stdout], [], [], LIMIT_S)[0]:
            text = self._process.stdout.readline()
            if text.startswith(start):
                return text
            if not text:
                break
        self._errors.seek(0)
        lines = [text.strip() for text in self._errors if text.strip()]
        raise RuntimeError((lines or ["no answer"])[-1][:300])

    def time(self, seconds: float) -> Mapping[str, float]:
        """Run for some seconds; return the median cpu and wall time in ms."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        times: Mapping[str, float] = json.loads(self._answer("{"))
        return times

    def is_right(self, kind: str) -> bool:
        """Return whether the outputs are like the references of the model's kind."""
        with np.load(self._outputs) as data:
            outputs = list(data.values())
        pairs = zip(self._references, outputs, strict=True)
        return all(likeness(a, b) >= LIKENESS[kind] for a, b in pairs)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
        self._errors.close()


def likeness(a: Array, b: Array) -> float:
    """Return the cosine of two outputs, or the share of labels that are equal."""
    if a.shape != b.shape:
        return 0.0
    if a.dtype.kind in "iu" and a.dtype.itemsize > 1:
        return float((a == b).mean())
    return cosine(a, b)


def measure(model: str, threads: int, rounds: int, seconds: float) -> Row:
    """Return the row of a model; its engines take turns."""
    row = Row(model, threads)
    engines: dict[str, Engine] = {}
    with ExitStack() as stack:
        try:
            files = files_of(model, threads)
        except RuntimeError as e:
            row.failures["edgec"] = str(e)
            return row
        for name in ENGINES:
            if name not in files:
                row.failures[name] = "the data folder has no file that it reads"
                continue
            try:
                engines[name] = Engine(name, *files[name], threads)
                stack.callback(engines[name].close)
            except RuntimeError as e:
                row.failures[name] = str(e)
        clock = "cpu" if threads == 1 else "wall"
        for i in range(rounds):
            for name in list(engines)[:: -1 if i % 2 else 1]:
                ms = engines[name].time(seconds)[clock]
                row.ms[name] = min(ms, row.ms.get(name, math.inf))
        row.differs = [n for n, e in engines.items() if not e.is_right(row.kind)]
    return row


def means(rows: Sequence[Row]) -> Iterator[str]:
    """Yield rows with the geometric means over the models that both engines run."""
    for kind in ("int8", "float"):
        of_kind = [row for row in rows if row.kind == kind]
        columns = ([r.ratio("litert") for r in of_kind], [r.best for r in of_kind])
        ratios = [[x for x in column if not math.isnan(x)] for column in columns]
        texts = [_ratio(geometric_mean(x) if x else math.nan) for x in ratios]
        yield line([f"geometric mean, {kind}", *[""] * len(ENGINES), *texts])


def main() -> int:
    """Print a table for each number of threads."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=names, default=list(NETWORKS))
    parser.add_argument("--threads", type=names, default=["1", "2"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.2, help="of a round")
    args = parser.parse_args()
    WORK.mkdir(parents=True, exist_ok=True)
    print(", ".join(f"{p} {version(PACKAGES[p])}" for p in PEERS), flush=True)
    rows: list[Row] = []
    for threads in map(int, args.threads):
        print(f"\nthreads: {threads}\n", *markdown(HEADS, []), sep="\n")
        of_threads = []
        for model in args.models:
            row = measure(model, threads, args.rounds, args.seconds)
            of_threads.append(row)
            print(line(row.cells()), flush=True)
        print(*means(of_threads), sep="\n", flush=True)
        rows += of_threads
    for row in rows:
        for engine, reason in row.failures.items():
            print(f"- {row.model}, {engine}: {reason}")
    write_json(BUILD / "bench-host.json", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
