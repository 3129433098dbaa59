"""Runs a bundle behind the Python interface of tflite_runtime's and LiteRT's interpreter.

    from edgec_runtime.interpreter import Interpreter

    interpreter = Interpreter(model_path="model.edgec")
    interpreter.allocate_tensors()

Scripts written for those two packages change the import and the file's name alone
(docs/interpreters.md).
"""

from .delegate import EdgeTpuDelegate as EdgeTpuDelegate
from .delegate import load_delegate as load_delegate
from .errors import DelegateError as DelegateError
from .errors import InterpreterError as InterpreterError
from .errors import InvokeError as InvokeError
from .interpreter import Interpreter as Interpreter
from .interpreter import OpResolverType as OpResolverType
from .signature import SignatureRunner as SignatureRunner
