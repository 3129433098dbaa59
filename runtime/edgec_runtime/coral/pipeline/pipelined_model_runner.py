"""A pipeline of models: while one model computes a frame, the next computes the frame
before.

A thread for each model takes tensors from the queue before it. On one Edge TPU the
models take turns; on the CPU they run at the same time.
"""

from __future__ import annotations

import threading
import weakref
from queue import SimpleQueue
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

import numpy as np
from numpy.typing import NDArray

from ...interpreter import Interpreter
from ...interpreter.errors import InterpreterError, InvokeError
from ...session.locks import Signal, alone, start

Array = NDArray[Any]
Tensors = Dict[str, Array]


class TensorQueue:
    """A queue between two threads, whose limit can change; without one at first."""

    def __init__(self) -> None:
        """Make an empty queue."""
        self._items: "SimpleQueue[Any]" = SimpleQueue()
        self._room = Signal()
        self._turn = threading.RLock()
        """Of who takes an item."""
        # None would be the natural word for no limit; pycoral has 0.
        self._limit = 0
        self._ended = False

    def set_limit(self, limit: int) -> None:
        """Let `put` wait while so many items are inside; 0: never."""
        self._limit = limit
        self._room.send()

    def put(self, item: Any) -> None:
        """Append an item, after waiting for room."""
        self._room.wait(lambda: self._was_added(item))

    def _was_added(self, item: Any) -> bool:
        if 0 < self._limit <= self._items.qsize():
            return False
        self._items.put(item)
        return True

    def end(self) -> None:
        """Say that no item follows; nobody waits for room for that."""
        self._ended = True
        self._items.put(None)

    def get(self) -> Any:
        """Return the first item, after waiting for one; None from the end on."""
        # Who waits for room looks again, also where a Ctrl-C ended the get before.
        self._room.send()
        item = alone(self._turn, self._taken)
        self._room.send()
        return item

    def _taken(self) -> Any:
        if self._ended and self._items.empty():
            return None
        return self._items.get()


class PipelinedModelRunner:
    """Runs models one after the other on a stream of frames.

        runner = PipelinedModelRunner([first, second])
        runner.push({"image": array})
        runner.push({})
        result = runner.pop()

    Every input of a model is an input of the first model, or an output of a model
    before it, by name.

    Args:
        interpreters: one for each model, allocated. The runner uses them alone until it
            was ended by an empty push.

    Raises:
        InterpreterError: there is none, or an input comes from nowhere
    """

    def __init__(self, interpreters: Sequence[Interpreter]) -> None:
        self._interpreters = list(interpreters)
        _check_chain(self._interpreters)
        inputs = self._interpreters[0].get_input_details()
        outputs = self._interpreters[-1].get_output_details()
        self._input_types = {row["name"]: row["dtype"] for row in inputs}
        self._ended = False

        # Each thread knows the queues alone, so that a runner nobody has ends them.
        self._queues = [TensorQueue() for _ in range(len(self._interpreters) + 1)]
        names = [row["name"] for row in outputs]
        for i, interpreter in enumerate(self._interpreters):
            is_last = i == len(self._interpreters) - 1
            thread = threading.Thread(
                target=_work,
                args=(
                    interpreter,
                    self._queues[i],
                    self._queues[i + 1],
                    names if is_last else None,
                ),
                name=f"edgec-pipeline-{i}",
                daemon=True,
            )
            start([thread])
        weakref.finalize(self, _end, list(self._queues))

    def interpreters(self) -> List[Interpreter]:
        """Return the interpreters, in order."""
        return self._interpreters

    def set_input_queue_size(self, size: int) -> None:
        """Let `push` wait while so many frames wait for the first model; 0: never."""
        self._queues[0].set_limit(size)

    def set_output_queue_size(self, size: int) -> None:
        """Let the last model wait while so many results were not popped; 0: never."""
        self._queues[-1].set_limit(size)

    def push(self, input_tensors: Mapping[str, Array]) -> None:
        """Give the pipeline a frame.

        Args:
            input_tensors: an array for each input of the first model, by name. They are
                not copied. An empty dict says that no frame follows.

        Raises:
            InterpreterError: a wrong name or type
            InvokeError: the pipeline was ended
        """
        if self._ended:
            raise InvokeError(
                "the pipeline was ended by an empty push", hint="make a new runner"
            )
        if not input_tensors:
            # The end goes through all models: all frames before it are computed.
            self._queues[0].end()
            self._ended = True
            return
        self._check(input_tensors)
        self._queues[0].put(dict(input_tensors))

    def _check(self, tensors: Mapping[str, Array]) -> None:
        expected = self._input_types
        if set(tensors) != set(expected):
            raise InterpreterError(
                f"the frame has the tensors {', '.join(tensors)}",
                hint=f"give {', '.join(expected)}",
            )
        for name, dtype in expected.items():
            tensor = tensors[name]
            if not isinstance(tensor, np.ndarray) or tensor.dtype != dtype:
                raise InterpreterError(
                    f'the tensor "{name}" is not an array of {np.dtype(dtype)}',
                    hint=f"give an array of {np.dtype(dtype)}",
                )

    def pop(self) -> Optional[Tensors]:
        """Return the outputs of the last model for the oldest frame, by name.

        It waits for them. None: the pipeline was ended, and nothing is left.

        Raises:
            InvokeError, InterpreterError: a model failed on this frame
        """
        result = self._queues[-1].get()
        if isinstance(result, Exception):
            raise result
        found: Optional[Tensors] = result
        return found


def _check_chain(interpreters: Sequence[Interpreter]) -> None:
    """Raise InterpreterError for a model whose inputs come from nowhere."""
    if not interpreters:
        raise InterpreterError(
            "a pipeline has at least one interpreter", hint="give a list with one"
        )
    # Models run in this order, so an input has to be known before its turn.
    known: Set[str] = {row["name"] for row in interpreters[0].get_input_details()}
    for i, interpreter in enumerate(interpreters):
        for row in interpreter.get_input_details():
            if row["name"] not in known:
                raise InterpreterError(
                    f'nothing before interpreter {i} gives its input "{row["name"]}"',
                    hint=f"the tensors there are {', '.join(sorted(known))}",
                )
        known.update(row["name"] for row in interpreter.get_output_details())


def _work(
    interpreter: Interpreter,
    before: TensorQueue,
    after: TensorQueue,
    results: Optional[List[str]],
) -> None:
    """Run a model on each frame of the queue before it, until None.

    results: the names that leave the pipeline; None: all that is known goes on, since
        later models may read it.
    """
    # Ends with the pipeline, or with a runner that nobody has any more.
    while True:
        tensors = before.get()
        if tensors is None:
            after.end()
            return
        # A failure takes the frame's place, and `pop` raises it.
        if not isinstance(tensors, Exception):
            tensors = _computed(interpreter, tensors)
        if results is not None and not isinstance(tensors, Exception):
            tensors = {name: tensors[name] for name in results}
        after.put(tensors)


def _computed(interpreter: Interpreter, tensors: Tensors) -> Any:
    """Return the tensors with a model's outputs, or the error that it raised."""
    try:
        for row in interpreter.get_input_details():
            interpreter.set_tensor(row["index"], tensors[row["name"]])
        interpreter.invoke()
    except Exception as e:
        # Also one that nobody expects: without it `pop` would wait for ever.
        return e
    # The frame goes on with all its tensors: a later model may read an early one.
    found = dict(tensors)
    for row in interpreter.get_output_details():
        found[row["name"]] = interpreter.get_tensor(row["index"])
    return found


def _end(queues: Sequence[TensorQueue]) -> None:
    """Let the threads of a runner end, also the ones that wait for room."""
    # A thread that waits for room would never see the end.
    for queue in queues:
        queue.set_limit(0)
    queues[0].end()
