"""Inputs and outputs of any network with one picture as input.

Pictures are [height, width, channels], and positions and sizes are (x, y) and (width,
height). An input of PyTorch, [1, channels, height, width], is seen in that order, too.
"""

from __future__ import annotations

from typing import Any, Callable, Tuple

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import InterpreterError
from ...tensors import TensorInfo
from ...vision.preprocess import ImageLayout

Array = NDArray[Any]
Size = Tuple[int, int]
"""Width and height in pixels."""


def output_tensor(interpreter: Any, i: int) -> Array:
    """Return a view of the output number i, with its batch axis."""
    # A view, as in pycoral: scripts that keep the result copy it themselves.
    index = interpreter.get_output_details()[i]["index"]
    view: Array = interpreter.tensor(index)()
    return view


def input_details(interpreter: Any, key: str) -> Any:
    """Return one entry of the first input's description, such as "quantization"."""
    return interpreter.get_input_details()[0][key]


def input_size(interpreter: Any) -> Size:
    """Return the width and height of the first input.

    Raises:
        InterpreterError: the input is no picture
    """
    shape = input_details(interpreter, "shape")
    height, width = shape[2:] if _is_planar(interpreter) else shape[1:3]
    return int(width), int(height)


def _is_planar(interpreter: Any) -> bool:
    """Return whether the first input has its channels before height and width.

    Raises InterpreterError for an input that is no picture.
    """
    shape = tuple(int(n) for n in input_details(interpreter, "shape"))
    if len(shape) != 4:
        raise InterpreterError(
            f"the input of shape {shape} is not a picture",
            hint="fill it with interpreter.set_tensor()",
        )
    # Of other numbers of channels pycoral's scripts say that they are last.
    layout = ImageLayout.of(TensorInfo("input", shape, "|u1"))
    return layout is not None and layout.channels_first


def input_tensor(interpreter: Any) -> Array:
    """Return a view of the first input, [height, width, channels].

    Raises:
        InterpreterError: the input is no picture
    """
    is_planar = _is_planar(interpreter)
    view: Array = interpreter.tensor(input_details(interpreter, "index"))()[0]
    return view.transpose(1, 2, 0) if is_planar else view


def set_input(interpreter: Any, data: Any) -> None:
    """Copy a picture of the input's size into it.

    Args:
        interpreter: the interpreter
        data: an array [height, width, channels], or a Pillow image
    """
    # The assignment takes a Pillow image, too, which numpy reads as an array.
    input_tensor(interpreter)[:, :] = data


def set_resized_input(
    interpreter: Any, size: Size, resize: Callable[[Size], Any]
) -> Tuple[Any, Tuple[float, float]]:
    """Fill the input with a picture at its own proportions, zeros right and below.

        scale = min(input width / width, input height / height)

    Args:
        interpreter: the interpreter
        size: of the picture
        resize: given a size, returns the picture in this size: an array or a Pillow
            image

    Returns:
        the resized picture, and the scale for x and for y.

    Raises:
        InterpreterError: the picture has another size than `resize` was given
    """
    input_width, input_height = input_size(interpreter)
    width, height = size
    scale = min(input_width / width, input_height / height)
    new_width = int(width * scale)
    new_height = int(height * scale)
    resized = resize((new_width, new_height))

    # What the last picture left to the right and below would be seen as objects.
    tensor = input_tensor(interpreter)
    tensor.fill(0)
    # A grey picture comes without its axis of one channel.
    shape = (new_height, new_width, tensor.shape[2])
    try:
        tensor[:new_height, :new_width] = np.reshape(resized, shape)
    except ValueError:
        raise InterpreterError(
            f"the resized picture is {np.shape(resized)}, not {shape}",
            hint=f"resize it to {new_width} x {new_height}, in the input's colours",
        ) from None
    return resized, (scale, scale)
