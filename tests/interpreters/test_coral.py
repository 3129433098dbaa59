"""pycoral's calls: six flows of its examples, with the behaviour that its reference
documents (coral.ai/docs/reference/py) as the expectation.
"""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import interpreter as litert
from edgec_runtime import EdgecError
from edgec_runtime.coral.adapters import classify, common, detect, segment
from edgec_runtime.coral.pipeline import pipelined_model_runner as pipeline
from edgec_runtime.coral.utils import edgetpu
from edgec_runtime.coral.utils.dataset import read_label_file
from edgec_runtime.coral.utils.edgetpu import make_interpreter
from numpy.typing import NDArray
from PIL import Image

from tests.interpreters import networks
from tests.webcam.conftest import compiled

pytestmark = pytest.mark.cc
Array = NDArray[Any]
REFUSED = (ValueError,)


def picture(seed: int, height: int = 16, width: int = 16) -> Array:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def reference(name: str, image: Array) -> list[Array]:
    """All outputs of LiteRT's reference kernels, or of its usual ones where it has no
    others.
    """
    kinds = litert.OpResolverType
    interpreter = litert.Interpreter(
        str(networks.compiled(name)[0]),
        experimental_op_resolver_type=kinds.BUILTIN
        if name == "heads"
        else kinds.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    (details,) = interpreter.get_input_details()
    interpreter.set_tensor(details["index"], image[None])
    interpreter.invoke()
    rows = interpreter.get_output_details()
    return [interpreter.get_tensor(row["index"]) for row in rows]


def interpreter_of(name: str) -> Any:
    interpreter = make_interpreter(str(networks.compiled(name)[1]))
    interpreter.allocate_tensors()
    return interpreter


# ---- classify
# --------------------------------------------------------------------------------------


def test_classify() -> None:
    interpreter = interpreter_of("classifier")
    assert common.input_size(interpreter) == (16, 16)
    assert common.input_details(interpreter, "dtype") is np.uint8
    image = picture(1)
    common.set_input(interpreter, Image.fromarray(image))
    np.testing.assert_array_equal(common.input_tensor(interpreter), image)
    interpreter.invoke()

    (raw,) = reference("classifier", image)
    scale, zero_point = interpreter.get_output_details()[0]["quantization"]
    scores = scale * (raw[0].astype(np.int64) - zero_point)
    np.testing.assert_array_equal(classify.get_scores(interpreter), scores)
    assert classify.num_classes(interpreter) == 5

    every = classify.get_classes(interpreter)
    assert sorted(c.id for c in every) == list(range(5))
    assert [c.score for c in every] == sorted(scores, reverse=True)
    assert classify.get_classes(interpreter, top_k=2) == every[:2]
    limit = every[2].score
    assert classify.get_classes(interpreter, 4, limit) == [
        c for c in every[:4] if c.score >= limit
    ]
    best = classify.Class(3, 0.5)
    assert (best.id, best.score) == best


def test_scores_of_floats_and_ties() -> None:
    scores = np.array([0.1, 0.4, 0.4, -1.0], np.float32)
    found = classify.get_classes_from_scores(scores, top_k=9)
    assert [c.id for c in found] == [1, 2, 0, 3]


# ---- detect
# --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_detect_with_a_picture_of_its_own_proportions() -> None:
    interpreter = interpreter_of("heads")
    image = picture(2, height=30, width=60)

    def nearest(size: tuple[int, int]) -> Image.Image:
        return Image.fromarray(image).resize(size, Image.Resampling.NEAREST)

    # What an inference before left in the input is gone.
    common.set_input(interpreter, np.full((16, 16, 3), 255, np.uint8))
    resized, scale = common.set_resized_input(interpreter, (60, 30), nearest)
    assert resized.size == (16, 8)
    assert scale == (16 / 60, 16 / 60)
    filled = common.input_tensor(interpreter).copy()
    np.testing.assert_array_equal(filled[:8], np.asarray(resized))
    assert not filled[8:].any()
    interpreter.invoke()

    boxes, classes, scores, count = reference("heads", filled)
    n = int(count[0])
    found = detect.get_objects(interpreter, image_scale=scale)
    assert [o.id for o in found] == classes[0, :n].astype(int).tolist()
    np.testing.assert_array_equal([o.score for o in found], scores[0, :n])
    for o, (top, left, bottom, right) in zip(found, boxes[0], strict=False):
        pixels = np.array([left, top, right, bottom], float) * 16 / (16 / 60)
        # In float64 from float32 numbers, towards zero.
        assert tuple(o.bbox) == tuple(int(p) for p in pixels)
        assert all(isinstance(number, int) for number in o.bbox)

    limit = float(np.median(scores[0, :n]))
    fewer = detect.get_objects(interpreter, limit, scale)
    assert fewer == [o for o in found if o.score >= limit]
    assert 0 < len(fewer) < len(found)


def test_boxes() -> None:
    a = detect.BBox(1, 2, 5, 10)
    b = detect.BBox(xmin=3, ymin=0, xmax=9, ymax=4)
    assert (a.width, a.height, a.area, a.valid) == (4, 8, 32, True)
    assert a.scale(2, 0.5) == (2, 1, 10, 5)
    assert a.translate(1, -2) == (2, 0, 6, 8)
    assert detect.BBox(0.6, 1.2, 2.9, 3.0).map(int) == (0, 1, 2, 3)
    assert detect.BBox.intersect(a, b) == (3, 2, 5, 4)
    assert detect.BBox.union(a, b) == (1, 0, 9, 10)
    assert detect.BBox.iou(a, b) == 4 / (32 + 24 - 4)
    away = detect.BBox(20, 20, 21, 21)
    assert not detect.BBox.intersect(a, away).valid
    assert detect.BBox.iou(a, away) == 0.0


class Outputs:
    """The part of an interpreter that `get_objects` reads, for each order of outputs."""

    def __init__(self, arrays: list[Array], signature: dict[str, int] | None) -> None:
        self.arrays = arrays
        self.signature = signature

    def get_input_details(self) -> list[dict[str, Any]]:
        return [{"shape": np.array([1, 10, 20, 3])}]

    def get_output_details(self) -> Any:
        if self.signature is not None and self.named:
            return {name: {"index": i} for name, i in self.signature.items()}
        return [{"index": i} for i in range(len(self.arrays))]

    named = False

    def tensor(self, index: int) -> Any:
        return lambda: self.arrays[index]

    def get_signature_list(self) -> dict[str, Any]:
        return {"serving_default": {}} if self.signature else {}

    def get_signature_runner(self) -> Outputs:
        runner = Outputs(self.arrays, self.signature)
        runner.named = True
        return runner


BOXES = np.array([[[0.1, 0.2, 0.5, 0.6], [0, 0, 1, 1], [0, 0, 0, 0]]], np.float32)
IDS = np.array([[7, 3, 0]], np.float32)
SCORES = np.array([[0.9, 0.4, 0]], np.float32)
COUNT = np.array([2], np.float32)


@pytest.mark.parametrize(
    ("arrays", "signature"),
    [
        ([BOXES, IDS, SCORES, COUNT], None),
        ([SCORES, BOXES, COUNT, IDS], None),
        (
            [IDS, COUNT, BOXES, SCORES],
            {"output_0": 1, "output_1": 3, "output_2": 0, "output_3": 2},
        ),
    ],
)
def test_every_order_of_a_detectors_outputs(
    arrays: list[Array], signature: dict[str, int] | None
) -> None:
    found = detect.get_objects(Outputs(arrays, signature))
    assert [(o.id, tuple(o.bbox)) for o in found] == [
        (7, (4, 1, 12, 5)),
        (3, (0, 0, 20, 10)),
    ]


# ---- segment, pose
# --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_segment() -> None:
    interpreter = interpreter_of("pixels")
    image = picture(3)
    common.set_input(interpreter, image)
    interpreter.invoke()
    result = segment.get_output(interpreter)
    assert result.shape == (8, 8, 5)
    (expected,) = reference("pixels", image)
    np.testing.assert_array_equal(result.argmax(-1), expected[0].argmax(-1))


def test_segment_of_classes() -> None:
    classes = np.arange(12, dtype=np.int64).reshape(1, 3, 4)
    found = segment.get_output(Outputs([classes], None))
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, classes[0])


@pytest.mark.slow
def test_pose_as_the_example_of_movenet_reads_it() -> None:
    interpreter = interpreter_of("points")
    image = picture(4, 40, 40)
    small = Image.fromarray(image).resize(common.input_size(interpreter))
    common.set_input(interpreter, small)
    interpreter.invoke()
    pose = common.output_tensor(interpreter, 0).copy().reshape(17, 3)
    (expected,) = reference("points", np.asarray(small))
    np.testing.assert_array_equal(pose, expected.reshape(17, 3))


@pytest.mark.shared
@pytest.mark.slow
def test_pose_of_movenet(shared: Path, tmp_path: Path) -> None:
    """The person of the first reference picture: points in 0…1 as LiteRT finds them."""
    import edgec

    folder = shared / "models" / "movenet_lightning_i8"
    data = np.load(folder / "ref.npz")
    edgec.compile(folder / "movenet_lightning_i8.tflite", "host", tmp_path / "m.edgec")
    interpreter = make_interpreter(str(tmp_path / "m.edgec"))
    interpreter.allocate_tensors()
    common.set_input(interpreter, data["in0_0"][0])
    interpreter.invoke()
    pose = common.output_tensor(interpreter, 0).copy().reshape(17, 3)
    # The reference kernels' points, which the usual ones miss by up to 4 pixels of 192.
    expected = data["kref0_0"].reshape(17, 3)
    assert (expected[:, 2] > 0.3).sum() >= 10
    np.testing.assert_allclose(pose, expected, rtol=0, atol=1e-6)


# ---- two models, a pipeline
# --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_models_in_turns_and_in_threads() -> None:
    image = picture(5)
    expected_scores = reference("classifier", image)[0]
    expected_count = int(reference("heads", image)[3][0])

    def classes(times: int) -> None:
        interpreter = interpreter_of("classifier")
        common.set_input(interpreter, image)
        for _ in range(times):
            interpreter.invoke()
            found = common.output_tensor(interpreter, 0)
            if not np.array_equal(found, expected_scores):
                wrong.append("classifier")

    def objects(times: int) -> None:
        interpreter = interpreter_of("heads")
        common.set_input(interpreter, image)
        for _ in range(times):
            interpreter.invoke()
            if len(detect.get_objects(interpreter)) != expected_count:
                wrong.append("detector")

    wrong: list[str] = []
    for _ in range(2):
        classes(3)
        objects(3)
    threads = [threading.Thread(target=f, args=(20,)) for f in (classes, objects)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def expected_of_both(image: Array) -> Array:
    """The second network's output for what the first one makes of a picture."""
    middle = reference("first_half", image)[0]
    second = litert.Interpreter(
        str(networks.compiled("second_half")[0]),
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
    )
    second.allocate_tensors()
    second.set_tensor(second.get_input_details()[0]["index"], middle)
    second.invoke()
    scores: Array = second.get_tensor(second.get_output_details()[0]["index"])
    return scores


@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.slow
def test_a_pipeline_of_two_models(limit: int) -> None:
    halves = [interpreter_of(name) for name in ("first_half", "second_half")]
    runner = pipeline.PipelinedModelRunner(halves)
    assert runner.interpreters() == halves
    runner.set_input_queue_size(limit)
    runner.set_output_queue_size(limit)
    images = [picture(seed) for seed in range(12)]
    name = halves[0].get_input_details()[0]["name"]

    def produce() -> None:
        for image in images:
            runner.push({name: image[None]})
        runner.push({})

    producer = threading.Thread(target=produce)
    producer.start()
    found = []
    while True:
        result = runner.pop()
        if not result:
            break
        found.append(result)
    producer.join()
    assert [list(r) for r in found] == [["scores"]] * len(images)
    for image, result in zip(images, found, strict=True):
        np.testing.assert_array_equal(result["scores"], expected_of_both(image))

    assert runner.pop() is None
    with pytest.raises(RuntimeError, match="ended"):
        runner.push({name: images[0][None]})


@pytest.mark.slow
def test_a_pipeline_refuses_what_pycoral_refuses() -> None:
    first, second = (interpreter_of(name) for name in ("first_half", "second_half"))
    with pytest.raises(ValueError, match="at least one"):
        pipeline.PipelinedModelRunner([])
    with pytest.raises(ValueError, match="interpreter 1 gives"):
        pipeline.PipelinedModelRunner([second, first])
    runner = pipeline.PipelinedModelRunner([first])
    refused: list[dict[str, Any]] = [
        {"image": np.zeros((1, 16, 16, 3), np.float32)},
        {"image": [1]},
        {"picture": picture(0)[None]},
        {"image": picture(0)[None], "more": picture(0)},
    ]
    for wrong in refused:
        with pytest.raises(REFUSED) as caught:
            runner.push(wrong)
        assert isinstance(caught.value, EdgecError)

    # A frame that fails takes its place; the others go on.
    runner.push({"image": picture(0)})
    runner.push({"image": picture(1)[None]})
    with pytest.raises(ValueError, match="shape"):
        runner.pop()
    assert list(runner.pop() or {}) == ["middle"]
    runner.push({})


@pytest.mark.slow
def test_a_forgotten_pipeline_ends_its_threads() -> None:
    # A failed test may have left a runner in its traceback.
    before = set(threading.enumerate())
    runner = pipeline.PipelinedModelRunner([interpreter_of("first_half")])
    runner.set_output_queue_size(1)
    for seed in range(4):
        runner.push({"image": picture(seed)[None]})
    mine = [t for t in threading.enumerate() if t not in before]
    assert [t.name for t in mine] == ["edgec-pipeline-0"]
    del runner
    for thread in mine:
        thread.join(20)
        assert not thread.is_alive()


# ---- utilities
# --------------------------------------------------------------------------------------


def test_raw_bytes() -> None:
    interpreter = interpreter_of("classifier")
    image = picture(6)
    (expected,) = reference("classifier", image)
    flat = image.reshape(-1)
    pointer = flat.ctypes.data_as(ctypes.c_void_p)
    longer = np.append(flat, np.zeros(9, np.uint8))
    for data in (flat, flat.tobytes(), (pointer, flat.size), longer):
        common.set_input(interpreter, np.zeros_like(image))
        edgetpu.run_inference(interpreter, data)
        np.testing.assert_array_equal(common.output_tensor(interpreter, 0), expected)
    with pytest.raises(ValueError, match="10 bytes"):
        edgetpu.run_inference(interpreter, flat[:10])
    with pytest.raises(TypeError, match="extract_dup"):
        edgetpu.run_inference(interpreter, 3)


@pytest.mark.slow
def test_pictures_of_a_network_of_pytorch(tmp_path: Path) -> None:
    """Its input has a plane for each channel."""
    path = compiled(tmp_path, "net", "Relu", (1, 3, 24, 32), "image")
    interpreter = make_interpreter(str(path))
    assert common.input_size(interpreter) == (32, 24)
    interpreter.allocate_tensors()
    image = picture(7, 24, 32).astype(np.float32)
    common.set_input(interpreter, image)
    planes = interpreter.get_tensor(0)[0]
    np.testing.assert_array_equal(planes, image.transpose(2, 0, 1))
    edgetpu.run_inference(interpreter, (image + 1).tobytes())
    found = common.output_tensor(interpreter, 0)[0]
    np.testing.assert_array_equal(found, image.transpose(2, 0, 1) + 1)

    small = picture(8, 8, 16)
    grown, scale = common.set_resized_input(
        interpreter, (16, 8), lambda size: np.array(Image.fromarray(small).resize(size))
    )
    assert scale == (2.0, 2.0)
    assert grown.shape == (16, 32, 3)
    planes = interpreter.get_tensor(0)[0]
    np.testing.assert_array_equal(planes[:, :16], grown.transpose(2, 0, 1))
    assert not planes[:, 16:].any()
    with pytest.raises(ValueError, match=r"\(3, 3, 3\), not \(16, 32, 3\)"):
        common.set_resized_input(interpreter, (16, 8), lambda size: small[:3, :3])


def test_content_and_wrong_devices() -> None:
    path = networks.compiled("classifier")[1]
    interpreter = make_interpreter(path.read_bytes())
    interpreter.allocate_tensors()
    interpreter.invoke()
    with pytest.raises(ValueError, match="no Edge TPU"):
        make_interpreter(str(path), device="usb 0")


def test_files_of_labels(tmp_path: Path) -> None:
    file = tmp_path / "labels.txt"
    file.write_text("0 tench\n1:gold fish\n 4  white: shark \n", encoding="utf-8")
    assert read_label_file(str(file)) == {0: "tench", 1: "gold fish", 4: "white: shark"}
    file.write_text("tench\ngold fish\n", encoding="utf-8")
    assert read_label_file(str(file)) == {0: "tench", 1: "gold fish"}
