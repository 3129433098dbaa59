"""How many int8 values differ between TFLite's arithmetic and the Edge TPU's.

Each layer of the shared networks whose arithmetic on the chip is known (convolutions,
fully connected layers, ADD, MUL, LOGISTIC, …) is computed twice from the same integers, by TFLite's law and by the chip's (docs/edgetpu-chip.md); then whole
networks, whose differences go on from layer to layer. Inputs are noise from a seed.

Markdown on the screen, build/chip-rounding.json. Needs the data folder (EDGEC_SHARED,
default ../shared).

    python -m benchmarks.chip_rounding [--only name,name] [--inputs 2]
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from edgec_partitioner.rounding import as_chip

from benchmarks.data_folder import BUILD, SHARED
from benchmarks.tables import markdown, names, write_json
from edgec.errors import EdgecError
from edgec.frontends import read_model
from edgec.ir import Array, Graph, Op, Value, interp
from edgec.ir.interp import initial, run_op

MODELS = SHARED / "edgetpu/models"
HEAD = (
    *("network", "layers", "values", "differ", "of a million", "largest step"),
    *("layers with one", "most in a layer", "outputs that differ"),
)
LARGEST = 12_000_000
"""Values in the layers of the largest network that is computed."""


@dataclass(frozen=True)
class Difference:
    """The differences of one network.

    Attributes:
        network: its name
        layers: operations whose arithmetic on the chip is known
        values: the values that these compute, for all inputs
        differ: those that are different from the same integers
        step: the largest difference
        with_one: layers with a different value
        most: the largest share of a layer's values, of a million
        layer: the layer that has it
        outputs: values of the network's outputs
        outputs_differ: those that are different in the end
        outputs_step: the largest difference of these
    """

    network: str
    layers: int
    values: int
    differ: int
    step: int
    with_one: int
    most: float
    layer: str
    outputs: int
    outputs_differ: int
    outputs_step: int

    def row(self) -> tuple[str, ...]:
        """Return the cells of the table."""
        return (
            self.network,
            str(self.layers),
            str(self.values),
            str(self.differ),
            f"{1e6 * self.differ / max(1, self.values):.1f}",
            str(self.step),
            str(self.with_one),
            f"{self.most:.0f} of a million" if self.differ else "-",
            f"{self.outputs_differ} of {self.outputs} by {self.outputs_step}",
        )


def main() -> None:
    """Compare the laws on all networks, or on some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", default="", help="names of networks, separated by commas"
    )
    parser.add_argument("--inputs", type=int, default=2, help="of each network")
    given = parser.parse_args()
    rows = [*differences(names(given.only), given.inputs)]
    print("\n".join(markdown(HEAD, (row.row() for row in rows))))
    write_json(BUILD / "chip-rounding.json", rows)


def differences(only: Collection[str], inputs: int) -> Iterator[Difference]:
    """Yield the differences of the networks that edgec reads."""
    seen = set[str]()
    for path in sorted(MODELS.rglob("*.tflite"), key=lambda p: p.stem):
        name = path.stem
        if (only and name not in only) or name in seen:
            continue
        seen.add(name)
        try:
            graph = read_model(path)
        except EdgecError as e:
            print(f"{name}: {e.what}")
            continue
        chip = as_chip(graph)
        size = sum(op.output.type.size for op, twin in _changed(graph, chip))
        if 0 < size <= LARGEST:
            yield _difference(name, graph, chip, inputs)


def _changed(graph: Graph, chip: Graph) -> list[tuple[Op, Op]]:
    """Return the operations that differ on the chip, as the file has them and there."""
    pairs = zip(graph.ops, chip.ops, strict=True)
    return [(op, twin) for op, twin in pairs if op.spec != twin.spec]


def _difference(name: str, graph: Graph, chip: Graph, inputs: int) -> Difference:
    rng = np.random.default_rng(1)
    by_layer = dict[str, tuple[int, int, int]]()
    outputs = outputs_differ = outputs_step = 0
    for _ in range(inputs):
        sample = {v.name: _noise(v, rng) for v in graph.given()}
        tflite = _compare(graph, chip, sample, by_layer)
        other = interp(chip, sample)
        for key, value in tflite.items():
            steps = np.abs(value.astype(np.float64) - other[key].astype(np.float64))
            outputs += steps.size
            outputs_differ += int(np.count_nonzero(steps))
            outputs_step = max(outputs_step, int(steps.max(initial=0)))
    shares = {layer: 1e6 * d / max(1, n) for layer, (n, d, _) in by_layer.items()}
    worst = max(shares, key=lambda layer: shares[layer], default="")
    return Difference(
        network=name,
        layers=len(by_layer),
        values=sum(n for n, _, _ in by_layer.values()),
        differ=sum(d for _, d, _ in by_layer.values()),
        step=max((s for _, _, s in by_layer.values()), default=0),
        with_one=sum(d > 0 for _, d, _ in by_layer.values()),
        most=shares.get(worst, 0.0),
        layer=worst,
        outputs=outputs,
        outputs_differ=outputs_differ,
        outputs_step=outputs_step,
    )


def _noise(value: Value, rng: np.random.Generator) -> Array:
    """Return an input of independent numbers."""
    type_ = value.type
    if np.issubdtype(type_.np_dtype, np.integer):
        info = np.iinfo(type_.np_dtype)
        return rng.integers(info.min, info.max + 1, type_.shape, type_.np_dtype)
    return rng.standard_normal(type_.shape).astype(type_.np_dtype)


def _compare(
    graph: Graph,
    chip: Graph,
    sample: dict[str, Array],
    by_layer: dict[str, tuple[int, int, int]],
) -> dict[str, Array]:
    """Return the outputs by TFLite's law, and add up the layers' differences."""
    arrays = {**initial(graph), **sample}
    kept: dict[Value, Array] = {v: arrays[v.name] for v in graph.inputs}
    last = {v: i for i, op in enumerate(graph.ops) for v in op.inputs}
    for i, (op, twin) in enumerate(zip(graph.ops, chip.ops, strict=True)):
        results = run_op(op, kept)
        if op.spec != twin.spec:
            env = {
                theirs: kept[ours]
                for theirs, ours in zip(twin.inputs, op.inputs, strict=True)
                if ours.const is None
            }
            (other,) = run_op(twin, env)
            steps = np.abs(results[0].astype(np.int32) - other.astype(np.int32))
            n, d, s = by_layer.get(op.output.name, (0, 0, 0))
            n, d = n + steps.size, d + int(np.count_nonzero(steps))
            by_layer[op.output.name] = n, d, max(s, int(steps.max(initial=0)))
        kept |= dict(zip(op.outputs, results, strict=True))
        for value in op.inputs:
            if last.get(value) == i and value not in graph.outputs:
                kept.pop(value, None)
    return {v.name: kept[v] if v.const is None else v.const for v in graph.outputs}


if __name__ == "__main__":
    main()
