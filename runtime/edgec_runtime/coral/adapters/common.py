"""Inputs and outputs of any network with one picture as input.

Pictures are NHWC, and positions and sizes are (x, y) and (width, height).
"""

from __future__ import annotations

from typing import Any, Callable, Tuple

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import InterpreterError

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
    """Return the width and height of the first input, [1, height, width, channels].

    Raises:
        InterpreterError: the input has another rank
    """
    shape = input_details(interpreter, "shape")
    if len(shape) != 4:
        raise InterpreterError(
            f"the input of shape {tuple(map(int, shape))} is no picture",
            hint="fill it with interpreter.set_tensor()",
        )
    _, height, width, _ = shape
    return int(width), int(height)


def input_tensor(interpreter: Any) -> Array:
    """Return a view of the first input, [height, width, channels]."""
    view: Array = interpreter.tensor(input_details(interpreter, "index"))()[0]
    return view


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
    tensor[:new_height, :new_width] = np.reshape(resized, shape)
    return resized, (scale, scale)
