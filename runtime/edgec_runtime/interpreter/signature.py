"""The call of a signature: tensors by the names of the model's author."""

from __future__ import annotations

from typing import Any, Dict, Mapping

from numpy.typing import NDArray

from ..bundle.signatures import SignatureInfo
from ..errors import did_you_mean
from .errors import InterpreterError

Array = NDArray[Any]


class SignatureRunner:
    """Calls a signature: `runner(argument=array)` returns the results by name.

    Made by `Interpreter.get_signature_runner`. It shares the interpreter's tensors, and
    allocates them where the interpreter did not.
    """

    def __init__(self, interpreter: Any, signature: SignatureInfo) -> None:
        """Bind a signature to its interpreter."""
        self._interpreter = interpreter
        self._signature = signature

    def __call__(self, **arguments: Any) -> Dict[str, Array]:
        """Run one inference.

        Raises:
            InterpreterError: an argument is missing, unknown, or no tensor of its type
            InvokeError: the inference failed
        """
        expected = self._signature.inputs
        for name in arguments:
            if name not in expected:
                raise InterpreterError(
                    f'the signature has no argument "{name}"'
                    f"{did_you_mean(name, expected)}",
                    at=self._signature.key,
                    hint=f"give its arguments: {', '.join(expected)}",
                )
        for name in expected:
            if name not in arguments:
                raise InterpreterError(
                    f'the argument "{name}" is missing',
                    at=self._signature.key,
                    hint=f"call it with {name}=array",
                )

        interpreter = self._interpreter
        # LiteRT allocates here, too: a script with a runner need not.
        interpreter.allocate_tensors()
        inputs = self.get_input_details()
        for name, value in arguments.items():
            interpreter.set_tensor(inputs[name]["index"], value)
        interpreter.invoke()
        results: Dict[str, Array] = {}
        for name, details in self.get_output_details().items():
            results[name] = interpreter.get_tensor(details["index"])
        return results

    def get_input_details(self) -> Dict[str, Dict[str, Any]]:
        """Return the description of each argument's tensor, by argument."""
        every = self._interpreter.get_input_details()
        return _by_name(every, self._signature.inputs)

    def get_output_details(self) -> Dict[str, Dict[str, Any]]:
        """Return the description of each result's tensor, by result."""
        every = self._interpreter.get_output_details()
        return _by_name(every, self._signature.outputs)


def _by_name(details: Any, names: Mapping[str, str]) -> Dict[str, Dict[str, Any]]:
    """Return descriptions of tensors under the names of a signature."""
    of_tensor = {row["name"]: row for row in details}
    return {name: of_tensor[tensor] for name, tensor in names.items()}
