"""Trained TFLite models of the data folder: interp is TFLite, and the generated C is
interp.
"""

from __future__ import annotations

from pathlib import Path

import flatbuffers
import numpy as np
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from edgec.frontends import read_model
from edgec.ir import Array, Graph, interp
from tests.harness import assert_agree, run_c

pytestmark = pytest.mark.shared

MODELS = (
    "deeplab_dm05_u8",
    "deeplabv3_257_f32",
    "hourglass_pose",
    "kws_dscnn_i8",
    "mnv1_025_128_u8",
    "mnv1_025_224_f32",
    "mnv1_025_224_u8",
    "mnv2_tf2_i8",
    "movenet_lightning_i8",
    "mp_blazeface_short_f16",
    "mp_face_landmark_f16",
    "mp_selfie_land_f16",
    "omv_blazeface_i8",
    "omv_facelandmarks_i8",
    "person_detect_i8",
    "prisma_f32",
    "prisma_i8",
    "resnet8_f32",
    "resnet8_i8",
    "ultraface_rfb320_tflite",
    "vww96_f32",
    "vww96_i8",
)
SMALL = (
    "kws_dscnn_i8",
    "mnv1_025_128_u8",
    "omv_blazeface_i8",
    "person_detect_i8",
    "resnet8_i8",
    "resnet8_f32",
    "vww96_i8",
)
TOLERANCE = 1e-4
"""Of the range of a float output."""


def _load(shared: Path, name: str) -> tuple[Graph, dict[str, Array]]:
    folder = shared / "models" / name
    return read_model(folder / f"{name}.tflite"), dict(np.load(folder / "ref.npz"))


def _inputs(graph: Graph, ref: dict[str, Array], k: int) -> dict[str, Array]:
    return {v.name: ref[f"in{k}_{j}"] for j, v in enumerate(graph.inputs)}


@pytest.mark.parametrize("name", MODELS)
def test_interp_is_tflite(name: str, shared: Path) -> None:
    """Integers bit for bit as the reference kernels, which also make the floats of a
    model that is integer inside.
    """
    graph, ref = _load(shared, name)
    got = interp(graph, _inputs(graph, ref, 0))
    for j, v in enumerate(graph.outputs):
        exact = f"kref0_{j}" in ref
        want = ref[f"kref0_{j}" if exact else f"out0_{j}"]
        if exact:
            np.testing.assert_array_equal(got[v.name], want)
        else:
            scale = max(float(np.ptp(want)), float(np.abs(want).max()))
            np.testing.assert_allclose(
                got[v.name], want, rtol=0, atol=TOLERANCE * scale
            )


def test_mixed_weights_are_computed_in_float(shared: Path) -> None:
    """kws_dscnn_f32 keeps int8 weights beside float images: TFLite quantizes the images
    as it goes, edgec does not.
    """
    graph, ref = _load(shared, "kws_dscnn_f32")
    (y,) = interp(graph, _inputs(graph, ref, 0)).values()
    np.testing.assert_allclose(y, ref["out0_0"], rtol=0, atol=1e-3)


def test_a_detector_before_its_post_process(shared: Path, tmp_path: Path) -> None:
    """ssd_mnv1_coco_u8 ends in an operator for the CPU: cut off, its inputs are the
    outputs.
    """
    model = schema.ModelT.InitFromPackedBuf(
        (shared / "models/ssd_mnv1_coco_u8/ssd_mnv1_coco_u8.tflite").read_bytes()
    )
    (sub,) = model.subgraphs
    sub.outputs = [int(i) for i in sub.operators.pop().inputs[:2]]
    builder = flatbuffers.Builder(1 << 24)
    builder.Finish(model.Pack(builder), b"TFL3")
    path = tmp_path / "cut.tflite"
    path.write_bytes(builder.Output())
    graph = read_model(path)
    ref = dict(np.load(shared / "models/ssd_mnv1_coco_u8/ref.npz"))
    interpreter = Interpreter(
        str(path), experimental_op_resolver_type=OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], ref["in0_0"])
    interpreter.invoke()
    got = interp(graph, _inputs(graph, ref, 0))
    for v, detail in zip(graph.outputs, interpreter.get_output_details(), strict=True):
        np.testing.assert_array_equal(
            got[v.name], interpreter.get_tensor(detail["index"])
        )


@pytest.mark.cc
@pytest.mark.parametrize("name", SMALL)
def test_c_is_interp(name: str, shared: Path) -> None:
    """The C of the file as it is, before any pass."""
    graph, ref = _load(shared, name)
    inputs = _inputs(graph, ref, 0)
    assert_agree(run_c(graph, inputs), interp(graph, inputs), 1e-4)
