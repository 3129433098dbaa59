"""One script's body on LiteRT's Interpreter and on ours: the same descriptions, the same
numbers, the same refusals.

Integers are compared with LiteRT's reference kernels bit for bit. Its usual kernels
round elsewhere (up to 7 levels of int8 in the models of the data folder): they are
compared within `LEVELS`. Floats agree within `REAL` of an output's range.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from ai_edge_litert import interpreter as litert
from edgec_runtime import EdgecError
from edgec_runtime import interpreter as ours
from numpy.typing import NDArray

import edgec
from tests import builds
from tests.interpreters import networks
from tests.runtime import tiny_model
from tests.webcam.conftest import compiled

pytestmark = pytest.mark.cc
Array = NDArray[Any]
REFUSED = (ValueError,)
"""What both raise; each has words of its own."""
LEVELS = 7
REAL = 1e-4
SHARED = (
    "kws_dscnn_i8",
    "mnist_lstm_f32",
    "mnist_lstm_i8",
    "mnv1_025_128_u8",
    "movenet_lightning_i8",
    "omv_blazeface_i8",
    "resnet8_f32",
    "resnet8_i8",
    "vww96_f32",
    "vww96_i8",
)
"""Ten trained models: classes, words, digits with state, a pose, faces. Float models
with int8 weights are not among them: LiteRT rounds their activations at run time.
"""


def outputs(module: ModuleType, path: Path, inputs: list[Array]) -> list[Array]:
    """The body of a script: all outputs after one inference."""
    interpreter = module.Interpreter(
        model_path=str(path),
        num_threads=1,
        experimental_op_resolver_type=module.OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    for details, data in zip(interpreter.get_input_details(), inputs, strict=True):
        interpreter.set_tensor(details["index"], data)
    interpreter.invoke()
    found = []
    for details in interpreter.get_output_details():
        found.append(interpreter.get_tensor(details["index"]))
    return found


def same_details(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """All but numbers of tensors, and shapes that a converter left open."""
    assert [row["name"] for row in found] == [row["name"] for row in expected]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.keys() == theirs.keys()
        assert mine["dtype"] is theirs["dtype"]
        assert mine["quantization"] == theirs["quantization"]
        assert mine["sparsity_parameters"] == theirs["sparsity_parameters"]
        for key in ("shape", "shape_signature"):
            assert mine[key].dtype == theirs[key].dtype
        np.testing.assert_array_equal(mine["shape"], theirs["shape"])
        for key, value in mine["quantization_parameters"].items():
            other = theirs["quantization_parameters"][key]
            np.testing.assert_array_equal(value, other)
            if key != "quantized_dimension":
                assert value.dtype == other.dtype


def random_inputs(path: Path, seed: int) -> list[Array]:
    rng = np.random.default_rng(seed)
    found: list[Array] = []
    for details in litert.Interpreter(str(path)).get_input_details():
        if np.issubdtype(details["dtype"], np.integer):
            limits = np.iinfo(details["dtype"])
            high = int(limits.max) + 1
            drawn = rng.integers(limits.min, high, details["shape"])
        else:
            drawn = rng.uniform(0, 1, details["shape"])
        found.append(drawn.astype(details["dtype"]))
    return found


def check_model(model: Path, bundle: Path, inputs: list[Array]) -> None:
    """Descriptions and outputs of the two."""
    mine = ours.Interpreter(str(bundle))
    theirs = litert.Interpreter(str(model))
    same_details(mine.get_input_details(), theirs.get_input_details())
    same_details(mine.get_output_details(), theirs.get_output_details())
    assert mine.get_signature_list() == theirs.get_signature_list()

    found = outputs(ours, bundle, inputs)
    expected = outputs(litert, model, inputs)
    for i, array in enumerate(found):
        assert array.dtype == expected[i].dtype
        if np.issubdtype(array.dtype, np.integer):
            np.testing.assert_array_equal(array, expected[i])
        else:
            limit = REAL * max(1e-6, float(np.ptp(expected[i])))
            np.testing.assert_allclose(array, expected[i], rtol=0, atol=limit)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["classifier", "pixels", "points"])
def test_own_networks_are_as_on_litert(name: str) -> None:
    model, bundle = networks.compiled(name)
    for seed in range(3):
        check_model(model, bundle, random_inputs(model, seed))


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED)
def test_trained_models_are_as_on_litert(name: str, shared: Path) -> None:
    model = shared / "models" / name / f"{name}.tflite"

    def make(folder: Path) -> None:
        edgec.compile(model, "host", folder / "model.edgec")

    bundle = builds.once(f"interpreters shared {name}", make) / "model.edgec"
    check_model(model, bundle, random_inputs(model, 0))

    # Real inputs, and the reference kernels' outputs where the folder has them.
    data = dict(np.load(model.parent / "ref.npz"))
    inputs = [data[key] for key in sorted(data) if key.startswith("in0_")]
    found = outputs(ours, bundle, inputs)
    for i, array in enumerate(found):
        kref = data.get(f"kref0_{i}")
        if kref is not None and np.issubdtype(array.dtype, np.integer):
            np.testing.assert_array_equal(array, kref)
        expected = data[f"out0_{i}"]
        if np.issubdtype(array.dtype, np.integer):
            assert np.abs(array.astype(int) - expected.astype(int)).max() <= LEVELS
        elif kref is None:
            limit = REAL * float(np.ptp(expected))
            np.testing.assert_allclose(array, expected, rtol=0, atol=limit)


@pytest.fixture
def classifier() -> Path:
    return networks.compiled("classifier")[1]


# ---- refusals: one body, both interpreters raise the same kind of error
# --------------------------------------------------------------------------------------


def picture(dtype: Any = np.uint8, shape: tuple[int, ...] = (1, 16, 16, 3)) -> Array:
    return np.zeros(shape, dtype)


WRONG = {
    "type": lambda i, n: i.set_tensor(n, picture(np.float32)),
    "rank": lambda i, n: i.set_tensor(n, picture(shape=(16, 16, 3))),
    "size": lambda i, n: i.set_tensor(n, picture(shape=(1, 16, 15, 3))),
    "list": lambda i, n: i.set_tensor(n, [[1]]),
    "number": lambda i, n: i.set_tensor(999, picture()),
    "negative number": lambda i, n: i.set_tensor(-1, picture()),
    "number read": lambda i, n: i.get_tensor(999),
    "number viewed": lambda i, n: i.tensor(999)(),
    "signature": lambda i, n: i.get_signature_runner("nothing"),
    "no signature": lambda i, n: i.get_signature_runner(),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_call_is_refused_as_by_litert(case: str) -> None:
    model, bundle = networks.compiled("classifier")
    for interpreter in (litert.Interpreter(str(model)), ours.Interpreter(bundle)):
        interpreter.allocate_tensors()
        number = interpreter.get_input_details()[0]["index"]
        with pytest.raises(REFUSED) as caught:
            WRONG[case](interpreter, number)
    assert isinstance(caught.value, EdgecError)
    assert caught.value.hint


def test_before_allocation_as_on_litert() -> None:
    model, bundle = networks.compiled("classifier")
    for interpreter in (litert.Interpreter(str(model)), ours.Interpreter(bundle)):
        number = interpreter.get_input_details()[0]["index"]
        with pytest.raises(RuntimeError):
            interpreter.invoke()
        with pytest.raises(REFUSED):
            interpreter.get_tensor(number)
        with pytest.raises(REFUSED):
            interpreter.tensor(number)()
        with pytest.raises(REFUSED):
            interpreter.set_tensor(number, picture())


CONSTRUCTORS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "no such file": {"model_path": "/nowhere/model"},
    "two models": {"model_path": "a", "model_content": b"a"},
    "damaged content": {"model_content": b"x" * 30},
    "no threads": {"num_threads": 0},
    "negative threads": {"num_threads": -1},
    "threads as text": {"num_threads": "2"},
}


@pytest.mark.parametrize("case", CONSTRUCTORS)
def test_a_wrong_constructor_is_refused_as_by_litert(case: str) -> None:
    model, bundle = networks.compiled("classifier")
    for module, path in ((litert, model), (ours, bundle)):
        given = dict(CONSTRUCTORS[case])
        if "num_threads" in given:
            given["model_path"] = str(path)
        with pytest.raises(REFUSED) as caught:
            module.Interpreter(**given)
    assert isinstance(caught.value, EdgecError)
    assert caught.value.hint


def test_a_tflite_has_to_be_compiled_first() -> None:
    model, _ = networks.compiled("classifier")
    for given in ({"model_path": model}, {"model_content": model.read_bytes()}):
        with pytest.raises(ours.InterpreterError, match="compiled first") as caught:
            ours.Interpreter(**given)
        assert "edgec compile" in str(caught.value.hint)


def test_what_a_bundle_cannot_do_says_one_action(classifier: Path) -> None:
    interpreter = ours.Interpreter(classifier)
    interpreter.resize_tensor_input(0, [1, 16, 16, 3])
    with pytest.raises(ours.InterpreterError) as caught:
        interpreter.resize_tensor_input(0, [2, 16, 16, 3])
    assert "--input-shape image=2x16x16x3" in str(caught.value.hint)
    with pytest.raises(ours.InterpreterError, match="not kept"):
        ours.Interpreter(classifier, experimental_preserve_all_tensors=True)
    with pytest.raises(TypeError, match="num_threads"):
        ours.Interpreter(classifier, num_thread=1)
    with pytest.raises(ours.InterpreterError, match="as delegate"):
        ours.Interpreter(classifier, experimental_delegates=["gpu"])
    with pytest.raises(ValueError, match="is not one for an Edge TPU"):
        ours.load_delegate("libGpuDelegate.so")
    for kind in (OSError, ValueError):
        with pytest.raises(kind, match="cannot be loaded"):
            ours.load_delegate("libedgetpu.so.99")
    with pytest.raises(ours.InterpreterError, match="no subgraph 1"):
        interpreter.get_tensor_details(1)


def test_more_threads_than_compiled_for_are_fewer_with_a_warning(
    classifier: Path,
) -> None:
    with pytest.warns(RuntimeWarning, match="--threads 4"):
        interpreter = ours.Interpreter(classifier, num_threads=4)
    interpreter.allocate_tensors()
    interpreter.invoke()


# ---- memory, content, state, signatures, borders of segments
# --------------------------------------------------------------------------------------


def test_views_write_inputs_and_show_outputs(classifier: Path) -> None:
    interpreter = ours.Interpreter(classifier)
    interpreter.allocate_tensors()
    output = interpreter.get_output_details()[0]["index"]
    view = interpreter.tensor(0)()
    result = interpreter.tensor(output)()
    rng = np.random.default_rng(1)
    for _ in range(2):
        view[...] = rng.integers(0, 256, view.shape, np.uint8)
        interpreter.invoke()
        np.testing.assert_array_equal(result, interpreter.get_tensor(output))
        np.testing.assert_array_equal(interpreter.get_tensor(0), view)
    copy = interpreter.get_tensor(output)
    copy[...] = 0
    assert result.any()

    # A second allocation keeps what is there, as in LiteRT.
    interpreter.allocate_tensors()
    assert view.any()
    assert interpreter.tensor(0)() is not None
    np.testing.assert_array_equal(interpreter.tensor(0)(), view)


def test_content_in_place_of_a_path(classifier: Path) -> None:
    given = random_inputs(networks.compiled("classifier")[0], 5)
    interpreter = ours.Interpreter(model_content=classifier.read_bytes())
    interpreter.allocate_tensors()
    interpreter.set_tensor(0, given[0])
    interpreter.invoke()
    (expected,) = outputs(ours, classifier, given)
    np.testing.assert_array_equal(interpreter.get_tensor(1), expected)
    with pytest.raises(ValueError, match="damaged"):
        ours.Interpreter(model_content=classifier.read_bytes()[:-100])


@pytest.fixture(scope="module")
def signed() -> tuple[Path, Path]:
    """The classifier with a signature, as .tflite and bundle."""

    def make(folder: Path) -> None:
        plain = networks.tflite("classifier")
        file = networks.with_signature(plain, ["photo"], ["classes"])
        (folder / "signed.tflite").write_bytes(file)
        edgec.compile(folder / "signed.tflite", "host", folder / "signed.edgec")

    folder = builds.once("interpreters signature", make)
    return folder / "signed.tflite", folder / "signed.edgec"


def test_signature_runners(signed: tuple[Path, Path]) -> None:
    (photo,) = random_inputs(signed[0], 3)
    results = []
    for module, path in zip((litert, ours), signed, strict=True):
        interpreter = module.Interpreter(str(path))
        assert interpreter.get_signature_list() == {
            "serving_default": {"inputs": ["photo"], "outputs": ["classes"]}
        }
        runner = interpreter.get_signature_runner()
        assert runner.get_input_details()["photo"]["dtype"] is np.uint8
        assert list(runner.get_output_details()) == ["classes"]
        results.append(runner(photo=photo)["classes"])
        for wrong in ({}, {"picture": photo}):
            with pytest.raises(REFUSED):
                runner(**wrong)
    difference = results[0].astype(int) - results[1].astype(int)
    assert np.abs(difference).max() <= LEVELS


@pytest.mark.parametrize(
    "text",
    [b"{", b"[]", b'{"a": 1}', b'{"a": {"inputs": {"x": "y"}, "outputs": {}}}'],
)
def test_damaged_signatures_are_refused(
    text: bytes, signed: tuple[Path, Path], tmp_path: Path
) -> None:
    from edgec_runtime import Bundle, write_bundle
    from edgec_runtime.bundle.signatures import SIGNATURES_FILE

    with Bundle.open(signed[1]) as bundle:
        files = {name: bundle.read(name) for name in bundle.names}
        files[SIGNATURES_FILE] = text
        write_bundle(tmp_path / "bad.edgec", bundle.manifest_fields(), files)
    with pytest.raises(ours.InterpreterError):
        ours.Interpreter(tmp_path / "bad.edgec")


@pytest.mark.slow
def test_a_model_of_onnx_keeps_its_layout_and_names(tmp_path: Path) -> None:
    bundle = compiled(tmp_path, "net", "Relu", (1, 3, 24, 32), "image")
    interpreter = ours.Interpreter(bundle)
    interpreter.allocate_tensors()
    (given,) = interpreter.get_input_details()
    (found,) = interpreter.get_output_details()
    assert (given["name"], given["shape"].tolist()) == ("x", [1, 3, 24, 32])
    assert (found["name"], found["dtype"]) == ("y", np.float32)
    assert given["quantization"] == (0.0, 0)
    x = np.random.default_rng(0).standard_normal((1, 3, 24, 32)).astype(np.float32)
    interpreter.set_tensor(given["index"], x)
    interpreter.invoke()
    expected = np.maximum(x, 0)
    np.testing.assert_array_equal(interpreter.get_tensor(found["index"]), expected)


@pytest.mark.shared
@pytest.mark.slow
def test_state_goes_on_and_begins_anew_as_on_litert(
    shared: Path, tmp_path: Path
) -> None:
    model = shared / "models" / "mnist_lstm_i8" / "mnist_lstm_i8.tflite"
    edgec.compile(model, "host", tmp_path / "m.edgec")
    (x,) = random_inputs(model, 1)
    seen = []
    for module, path in ((litert, model), (ours, tmp_path / "m.edgec")):
        interpreter = module.Interpreter(
            str(path),
            experimental_op_resolver_type=module.OpResolverType.BUILTIN_REF,
        )
        interpreter.allocate_tensors()
        found = []
        for step in range(4):
            if step == 3:
                interpreter.reset_all_variables()
            index = interpreter.get_input_details()[0]["index"]
            interpreter.set_tensor(index, x)
            interpreter.invoke()
            output = interpreter.get_output_details()[0]["index"]
            found.append(interpreter.get_tensor(output))
        np.testing.assert_array_equal(found[3], found[0])
        assert not np.array_equal(found[1], found[0])
        seen.append(found)
    np.testing.assert_array_equal(seen[0], seen[1])


@pytest.mark.slow
def test_a_cascade_has_no_tensors_of_its_own(tmp_path: Path) -> None:
    import edgec
    from tests.cascade import objects

    file = objects.write(tmp_path)
    edgec.compile(file, "host", tmp_path / "c.edgec")
    with pytest.raises(ours.InterpreterError, match="cascade"):
        ours.Interpreter(tmp_path / "c.edgec")


def test_tensors_between_segments(bundle_path: Path) -> None:
    interpreter = ours.Interpreter(bundle_path)
    interpreter.allocate_tensors()
    rows = {row["name"]: row for row in interpreter.get_tensor_details()}
    assert list(rows) == ["image", "out", "sums", "q", "r"]
    with pytest.raises(ours.InterpreterError, match="between segments"):
        interpreter.get_tensor(rows["q"]["index"])
    image = tiny_model.image(3)
    interpreter.set_tensor(rows["image"]["index"], image)
    interpreter.invoke()
    expected = tiny_model.reference(image)
    for name, array in expected.items():
        found = interpreter.get_tensor(rows[name]["index"])
        np.testing.assert_array_equal(found, array)
    shifted = (image.astype(np.int16) - 128).astype(np.int8)
    np.testing.assert_array_equal(interpreter.get_tensor(rows["q"]["index"]), shifted)


def test_what_is_no_number_shape_or_array_is_refused(classifier: Path) -> None:
    """LiteRT raises TypeError for some of them."""
    interpreter = ours.Interpreter(classifier)
    interpreter.allocate_tensors()
    wrong: list[Callable[[], object]] = [
        lambda: interpreter.get_tensor(1.5),  # type: ignore[arg-type]
        lambda: interpreter.get_tensor(None),  # type: ignore[arg-type]
        lambda: interpreter.set_tensor(0.5, picture()),  # type: ignore[arg-type]
        lambda: interpreter.tensor("0")(),  # type: ignore[arg-type]
        lambda: interpreter.set_tensor(0, [[1], [2, 3]]),
        lambda: interpreter.resize_tensor_input(0, None),
        lambda: interpreter.resize_tensor_input(0, [1, 16.5, 16, 3]),
        lambda: interpreter.get_signature_runner([]),  # type: ignore[arg-type]
        lambda: interpreter.get_signature_runner(5),  # type: ignore[arg-type]
    ]
    for call in wrong:
        with pytest.raises(ours.InterpreterError) as caught:
            call()
        assert caught.value.hint
    number = np.int64(0)
    assert interpreter.get_tensor(number).shape == (1, 16, 16, 3)  # type: ignore[arg-type]


def test_a_view_may_be_reshaped(classifier: Path) -> None:
    interpreter = ours.Interpreter(classifier)
    interpreter.allocate_tensors()
    for row in (*interpreter.get_input_details(), *interpreter.get_output_details()):
        view = interpreter.tensor(row["index"])()
        view.shape = (view.size,)
        assert interpreter.tensor(row["index"])().shape == tuple(row["shape"])
    interpreter.invoke()


def test_a_closed_session_raises_the_interpreters_errors(bundle_path: Path) -> None:
    interpreter = ours.Interpreter(bundle_path)
    interpreter.allocate_tensors()
    interpreter.invoke()
    interpreter._session.close()
    with pytest.raises(ours.InvokeError, match="closed"):
        interpreter.invoke()
    with pytest.raises(ours.InvokeError, match="closed"):
        interpreter.reset_all_variables()
    with pytest.raises(ours.InterpreterError, match="closed"):
        interpreter.get_tensor(4)


@pytest.mark.parametrize("name", ["missing.edgec", "damaged.edgec"])
def test_the_traceback_of_a_script_ends_in_one_message(
    name: str, tmp_path: Path
) -> None:
    (tmp_path / "damaged.edgec").write_bytes(b"PK" * 50)
    script = f"from edgec_runtime.interpreter import *; Interpreter({name!r})"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr.count("Traceback") == 1
    assert done.stderr.count("error: ") == 1
    assert done.stderr.splitlines()[-1].startswith("  hint: ")


def test_a_failed_segment_is_a_runtime_error(bundle_path: Path) -> None:
    interpreter = ours.Interpreter(bundle_path)
    interpreter.allocate_tensors()
    # The tiny model fails on purpose for a white image.
    interpreter.set_tensor(0, np.full(tiny_model.SHAPE, 255, np.uint8))
    with pytest.raises(RuntimeError, match="returned 7"):
        interpreter.invoke()
