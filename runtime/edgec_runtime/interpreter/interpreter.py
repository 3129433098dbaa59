"""A bundle as a TFLite interpreter: numbered tensors, set, invoked and read.

The interface is that of tf.lite.Interpreter, as LiteRT's API reference and its error
messages describe it; docs/interpreters.md lists the differences.
"""

from __future__ import annotations

import enum
import operator
import warnings
from typing import Any, Callable, Dict, List, Optional, Sequence

import numpy as np
from numpy.typing import NDArray

from ..bundle.archive import Bundle, PathLike
from ..bundle.signatures import SignatureInfo, read_signatures
from ..errors import BundleError, DeviceError, EdgecWarning, InputError, did_you_mean
from ..session.edgetpu import EdgeTpuOptions
from ..session.session import Session
from ..tensors import TensorInfo
from .delegate import edgetpu_options
from .errors import InterpreterError, InvokeError, as_value_error
from .signature import SignatureRunner


def tensor_details(info: TensorInfo, index: int) -> Dict[str, Any]:
    """Return the description of a tensor.

    Its keys are "name", "index", "shape" and "shape_signature" (int32 arrays, equal: a
    bundle's shapes are fixed), "dtype" (a numpy scalar type), "quantization" (scale and
    zero point of a tensor with one of each, else 0.0 and 0), "quantization_parameters"
    and "sparsity_parameters" (empty: tensors at a border are dense).

    Args:
        info: the tensor
        index: its number in the interpreter
    """
    shape = np.array(info.shape, np.int32)
    parameters = _quantization_parameters(info)
    # A tensor with a scale for each channel has no pair that says it all.
    pair = (0.0, 0)
    if len(parameters["scales"]) == 1:
        scale = float(parameters["scales"][0])
        zero_point = int(parameters["zero_points"][0])
        pair = (scale, zero_point)
    return {
        "name": info.name,
        "index": index,
        "shape": shape,
        "shape_signature": shape.copy(),
        "dtype": info.numpy_dtype.type,
        "quantization": pair,
        "quantization_parameters": parameters,
        "sparsity_parameters": {},
    }


def _quantization_parameters(info: TensorInfo) -> Dict[str, Any]:
    """Return "scales", "zero_points" and "quantized_dimension" of a tensor.

    real = scales[i] · (q − zero_points[i]), with i along the quantized dimension. Both
    arrays are empty for a tensor without quantization.
    """
    quant = info.quant
    scales = () if quant is None else quant.scale
    zero_points = () if quant is None else quant.zero_point
    axis = None if quant is None else quant.axis
    return {
        "scales": np.array(scales, np.float32),
        "zero_points": np.array(zero_points, np.int32),
        # TFLite has 0 where there is one scale for the whole tensor.
        "quantized_dimension": axis or 0,
    }


Array = NDArray[Any]


class OpResolverType(enum.IntEnum):
    """The kernels of LiteRT to choose from, which a bundle has no use for.

    Results are those of the reference kernels bit for bit, in float32 within 1e-5.
    """

    AUTO = 0
    BUILTIN = 1
    BUILTIN_REF = 2
    BUILTIN_WITHOUT_DEFAULT_DELEGATES = 3


_WITHOUT_EFFECT = (
    "experimental_op_resolver_type",
    "experimental_disable_delegate_clustering",
    "experimental_default_delegate_latest_features",
    "experimental_compress_quantization_zero_points",
    "experimental_disable_delegate_node_fusion",
    "experimental_force_delegate_node_profiling",
)
"""Options of LiteRT that choose between its kernels: a bundle's are in its own code."""

_PRESERVE = "experimental_preserve_all_tensors"


class Interpreter:
    """Runs a bundle with the methods of tflite_runtime's and LiteRT's Interpreter.

    Tensors are the model's own, in their types and layout: quantized tensors hold
    integers, and pictures are not prepared. Numbers of tensors come from the `details`
    methods; inputs are counted first, then outputs, then the other tensors at borders
    of segments. One thread may use an interpreter at a time.

    Args:
        model_path: the .edgec file
        model_content: the content of such a file, in place of the path
        experimental_delegates: the Edge TPU, from `load_delegate`; without it the
            bundle runs on the CPU
        num_threads: threads of the CPU; more than the bundle was compiled for are
            reduced to those, with a warning
        edgetpu: how segments for the Edge TPU run, in place of a delegate (see Session)
        options: LiteRT's further options: those for its kernels have no effect

    Raises:
        InterpreterError: the model, the threads or an option cannot be used
    """

    def __init__(
        self,
        model_path: Optional[PathLike] = None,
        model_content: Optional[bytes] = None,
        experimental_delegates: Optional[Sequence[Any]] = None,
        num_threads: Optional[int] = None,
        *,
        edgetpu: Optional[EdgeTpuOptions] = None,
        **options: Any,
    ) -> None:
        _check_options(options)
        if edgetpu is None:
            edgetpu = edgetpu_options(experimental_delegates)
        bundle = _open(model_path, model_content)
        threads = _threads(num_threads, bundle)
        try:
            hint = "run it with a Session, whose `result` takes frames"
            bundle.manifest.check_alone(str(bundle.path), hint)
            self._session = Session(
                bundle,
                tpu=edgetpu.tpu,
                interpreter=edgetpu.interpreter,
                threads=threads,
                driver=edgetpu.driver,
                timeout=edgetpu.timeout,
            )
            self._signatures = read_signatures(bundle)
        except (BundleError, DeviceError, InputError) as e:
            bundle.close()
            raise as_value_error(e) from None

        manifest = bundle.manifest
        # State and tensors between segments come last: scripts seldom read them.
        names = [*manifest.inputs, *manifest.outputs, *manifest.tensors]
        # A dict keeps the first place of a name: an output may be an input, too.
        self._infos: List[TensorInfo] = [
            manifest.tensors[name] for name in dict.fromkeys(names)
        ]
        self._index_of = {info.name: i for i, info in enumerate(self._infos)}
        # Empty until allocate_tensors(), as LiteRT has no memory before it.
        self._arrays: Dict[str, Array] = {}
        self._was_invoked = False

    # ---- descriptions
    # ----------------------------------------------------------------------------------

    def get_input_details(self) -> List[Dict[str, Any]]:
        """Return the description of each input, in the model's order."""
        return [self._details(info.name) for info in self._session.inputs]

    def get_output_details(self) -> List[Dict[str, Any]]:
        """Return the description of each output, in the model's order."""
        return [self._details(info.name) for info in self._session.outputs]

    def get_tensor_details(self, subgraph_index: int = 0) -> List[Dict[str, Any]]:
        """Return the description of each tensor at a border of a segment.

        Tensors within a segment have no names in a bundle, unlike in a .tflite.
        """
        _check_subgraph(subgraph_index)
        return [self._details(info.name) for info in self._infos]

    def num_subgraphs(self) -> int:
        """Return 1: a bundle has the model's main subgraph."""
        return 1

    def _details(self, name: str) -> Dict[str, Any]:
        index = self._index_of[name]
        return tensor_details(self._infos[index], index)

    def get_signature_list(self) -> Dict[str, Dict[str, List[str]]]:
        """Return the names of arguments and results of each signature.

        The form is {key: {"inputs": [...], "outputs": [...]}}; {} for a model without.
        """
        listed: Dict[str, Dict[str, List[str]]] = {}
        for key, signature in self._signatures.items():
            # LiteRT sorts the names, too.
            inputs = sorted(signature.inputs)
            outputs = sorted(signature.outputs)
            listed[key] = {"inputs": inputs, "outputs": outputs}
        return listed

    def get_signature_runner(
        self, signature_key: Optional[str] = None
    ) -> SignatureRunner:
        """Return a function that runs a signature.

        Args:
            signature_key: the signature's key; None where the model has one

        Raises:
            InterpreterError: there is no such signature
        """
        return SignatureRunner(self, self._signature(signature_key))

    def _signature(self, key: Optional[str]) -> SignatureInfo:
        every = self._signatures
        if key is None and len(every) == 1:
            return next(iter(every.values()))
        if isinstance(key, str) and key in every:
            return every[key]
        known = ", ".join(every)
        if key is None:
            what = f"the model has {len(every)} signatures"
        else:
            what = f'the model has no signature "{key}"{did_you_mean(str(key), every)}'
        if known:
            hint = f"give signature_key=, one of {known}"
        else:
            hint = "use set_tensor, invoke and get_tensor"
        raise InterpreterError(what, at=self._path, hint=hint)

    # ---- tensors
    # ----------------------------------------------------------------------------------

    def allocate_tensors(self) -> None:
        """Make the memory of inputs and outputs, zeros at first.

        A second call keeps what is there.
        """
        if self._arrays:
            return
        # All at once: some alone would look like all, after a Ctrl-C.
        self._arrays = {
            info.name: np.zeros(info.shape, info.numpy_dtype)
            for info in (*self._session.inputs, *self._session.outputs)
        }

    def set_tensor(self, tensor_index: int, value: Any) -> None:
        """Copy an array into an input, or into the memory of an output.

        Nothing is converted. LiteRT's preconditions hold: the type and the shape are
        exactly the tensor's.

        Args:
            tensor_index: the tensor's number
            value: the array

        Raises:
            InterpreterError: a wrong number, type or shape, or nothing is allocated
        """
        info = self._info(tensor_index)
        memory = self._memory(info)
        # A list of numbers becomes int64 or float64, and is refused as in LiteRT.
        try:
            array = np.asarray(value)
        except ValueError as e:
            raise InterpreterError(
                f'tensor {tensor_index}, "{info.name}", takes an array: {e}',
                at=self._path,
                hint=f"give an array {info.numpy_dtype} {info.shape}",
            ) from None
        if array.dtype != info.numpy_dtype:
            raise InterpreterError(
                f'tensor {tensor_index}, "{info.name}", is {info.numpy_dtype}, not '
                f"{array.dtype}",
                at=self._path,
                hint=_conversion(info, array),
            )
        if array.shape != info.shape:
            raise InterpreterError(
                f'tensor {tensor_index}, "{info.name}", has shape {info.shape}, not '
                f"{array.shape}",
                at=self._path,
                hint=_reshaping(info, array),
            )
        np.copyto(memory, array)

    def get_tensor(self, tensor_index: int, subgraph_index: int = 0) -> Array:
        """Return a copy of a tensor.

        After `invoke` this includes tensors between segments.

        Args:
            tensor_index: the tensor's number
            subgraph_index: 0

        Raises:
            InterpreterError: a wrong number, or nothing is allocated
        """
        _check_subgraph(subgraph_index)
        info = self._info(tensor_index)
        if info.name in self._arrays or not self._was_invoked:
            return self._memory(info).copy()
        try:
            return self._session.tensor(info.name)
        except InputError as e:
            raise as_value_error(e) from None

    def tensor(self, tensor_index: int) -> Callable[[], Array]:
        """Return a function for a view of a tensor's memory.

        Writing an input's view is as good as `set_tensor`. Unlike in LiteRT, views may
        be kept while `invoke` runs: memory never moves, and a view of an output shows
        the newest result.
        """
        # A new view each time: a script may change the shape of its own.
        return lambda: self._memory(self._info(tensor_index)).view()

    def resize_tensor_input(
        self, input_index: int, tensor_size: Any, strict: bool = False
    ) -> None:
        """Accept the shape that an input has.

        Args:
            input_index: the input's number
            tensor_size: the shape
            strict: has no effect

        Raises:
            InterpreterError: another shape, for which the bundle has no code
        """
        info = self._info(input_index)
        try:
            wanted = tuple(operator.index(n) for n in tensor_size)
        except TypeError:
            raise InterpreterError(
                f"{tensor_size!r:.80} is not a shape",
                at=self._path,
                hint=f"give a list of integers: {list(info.shape)}",
            ) from None
        if wanted == info.shape:
            return
        text = "x".join(map(str, wanted))
        raise InterpreterError(
            f'the bundle\'s code is for "{info.name}" of shape {info.shape}, not '
            f"{wanted}",
            at=self._path,
            hint=f"compile the model with --input-shape {info.name}={text} (a .tflite "
            "is converted anew for that)",
        )

    def _info(self, index: int) -> TensorInfo:
        """Return the tensor with a number; raises InterpreterError for another."""
        last = len(self._infos) - 1
        try:
            # Integers of numpy are integers, too.
            number = operator.index(index)
        except TypeError:
            number = -1
        if not 0 <= number <= last:
            raise InterpreterError(
                f"there is no tensor {index!r:.80}: the last one is {last}",
                at=self._path,
                hint='take "index" from get_input_details() or get_output_details()',
            )
        return self._infos[number]

    def _memory(self, info: TensorInfo) -> Array:
        """Return the memory of an input or output, or raise InterpreterError."""
        if not self._arrays:
            raise InterpreterError(
                f'tensor "{info.name}" has no memory yet',
                at=self._path,
                hint="call allocate_tensors() first",
            )
        if info.name not in self._arrays:
            raise InterpreterError(
                f'tensor "{info.name}" lies between segments, and has no memory of '
                "its own",
                at=self._path,
                hint="read it with get_tensor() after invoke()",
            )
        return self._arrays[info.name]

    # ---- inferences
    # ----------------------------------------------------------------------------------

    def invoke(self) -> None:
        """Run one inference on the inputs' memory.

        State of the model goes on where the last inference left it.

        Raises:
            InvokeError: nothing is allocated, a segment failed, or the session was
                closed
        """
        if not self._arrays:
            raise InvokeError(
                "the tensors have no memory yet",
                at=self._path,
                hint="call allocate_tensors() first",
            )
        inputs = {info.name: self._arrays[info.name] for info in self._session.inputs}
        try:
            results = self._session.run(inputs)
        except (DeviceError, InputError) as e:
            raise InvokeError(e.what, e.at, e.hint) from None
        # Into the same memory, which views of the outputs show.
        for name, result in results.items():
            np.copyto(self._arrays[name], result)
        self._was_invoked = True

    def reset_all_variables(self) -> None:
        """Give the model's state its first values.

        Raises:
            InvokeError: the session was closed
        """
        try:
            self._session.reset()
        except InputError as e:
            raise InvokeError(e.what, e.at, e.hint) from None

    @property
    def _path(self) -> str:
        return str(self._session.bundle.path)


# ---- checks
# --------------------------------------------------------------------------------------


def _open(path: Optional[PathLike], content: Optional[bytes]) -> Bundle:
    """Return the bundle of a path or a content; raises InterpreterError."""
    if (path is None) == (content is None):
        both = "neither" if path is None else "both"
        raise InterpreterError(
            f"{both} of model_path and model_content were given",
            hint="give one: model_path='model.edgec'",
        )
    try:
        if content is not None:
            return Bundle.of_bytes(bytes(content), "model_content")
        assert path is not None
        return Bundle.open(path)
    except BundleError as e:
        # One message is enough: the traceback of a script would have them all.
        raise as_value_error(e) from None


def _threads(wanted: Any, bundle: Bundle) -> int:
    """Return the threads to use: as many as wanted, and compiled for.

    LiteRT takes `num_threads` as a limit, too. Its preconditions hold: an integer of at
    least 1.
    """
    # One is what LiteRT takes without the option.
    if wanted is None:
        return 1
    if not isinstance(wanted, int) or wanted < 1:
        raise InterpreterError(
            f"num_threads={wanted!r} is not a number of threads",
            hint="give an integer of at least 1, or leave it out",
        )
    there = bundle.manifest.threads
    if wanted > there:
        message = (
            f"num_threads={wanted}: the bundle's code is for {there}; compile it with "
            f"--threads {min(wanted, 4)} for more"
        )
        warnings.warn(message, EdgecWarning, stacklevel=3)
    return min(wanted, there)


def _check_options(options: Dict[str, Any]) -> None:
    """Refuse options that LiteRT lacks, or that a bundle cannot fulfil."""
    known = (*_WITHOUT_EFFECT, _PRESERVE)
    names = (*known, "model_path", "model_content", "num_threads")
    for name, value in options.items():
        if name not in known:
            raise TypeError(
                f'Interpreter has no option "{name}"{did_you_mean(name, names)}'
            )
        if name == _PRESERVE and value:
            raise InterpreterError(
                "tensors inside a segment of a bundle share memory and are not kept",
                hint=f"leave {_PRESERVE} out; `edgec diff` shows every tensor",
            )


def _check_subgraph(index: int) -> None:
    if index != 0:
        raise InterpreterError(
            f"there is no subgraph {index}: a bundle has one", hint="give 0"
        )


def _conversion(info: TensorInfo, array: Array) -> str:
    """Return how an array gets the type of a tensor."""
    if info.quant is not None and array.dtype.kind == "f":
        return (
            "quantize the values: value / scale + zero_point, rounded, with the "
            'numbers of the detail "quantization"'
        )
    return f'convert the values: array.astype("{info.numpy_dtype}")'


def _reshaping(info: TensorInfo, array: Array) -> str:
    """Return how an array gets the shape of a tensor."""
    if info.shape[:1] == (1,) and array.shape == info.shape[1:]:
        return "add the batch axis: array[None]"
    return f"resize or reshape the array to {info.shape}"
