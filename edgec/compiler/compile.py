"""`compile` and `finish`: from a model file or a module to a bundle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgec_devices.options import path_of

from edgec.catalogue.fetching import local_file
from edgec.compiler.cascade import compile_cascade, is_cascade
from edgec.compiler.compilation import (
    COMPLETE_STEPS,
    PLACE_STEPS,
    Compilation,
    Compiled,
)
from edgec.compiler.job import Job
from edgec.frontends.pt2 import saved
from edgec.options.compile import CompileOptions
from edgec.steps import Progress, Steps
from edgec.toolchain.edgetpu.handoff import HandOff
from edgec.toolchain.edgetpu.runner_option import runner_for

_PLAN = (*PLACE_STEPS, *COMPLETE_STEPS)


def compile_model(
    model: str | Path | Callable[..., Any],
    options: CompileOptions,
    progress: Progress | None = None,
    example_inputs: Sequence[Any] | None = None,
) -> Compiled:
    """Compile a model file, a module of PyTorch, or all networks of a cascade into a
    bundle.

    Args:
        model: the file, `models:NAME` of the catalogue, the module, or a cascade.toml.
        options: the options of the compile.
        progress: is called with each step.
        example_inputs: inputs of a module.

    Raises EdgecError, with exit code 1 when the verification fails and 2 when the input
    must change; no bundle is left then.
    """
    opened: AbstractContextManager[Path]
    if callable(model):
        opened = saved(model, example_inputs)
    else:
        # A name of the catalogue may be a cascade's.
        file = local_file(Path(model), progress or Steps())
        if is_cascade(file):
            return compile_cascade(file, options, progress)
        opened = nullcontext(file)

    if options.reuse is not None:
        # The compiled file has all that the Edge TPU can run.
        options = replace(options, edgetpu="all")
    say = Steps(progress, plan=_PLAN)
    with opened as file:
        job = Job(file, options)
        job.check()

        # A person who compiles by hand finishes the job later, from its recipe. Other
        # jobs have no use for the hashes of all files.
        where = options.edgetpu_compiler
        by_hand = (where or "").startswith("folder:")
        runner = runner_for(
            where, job.recipe() if by_hand else {}, path_of(options.reuse)
        )
        # Without the options, a missing edgetpu_compiler only costs speed.
        needed = where is not None or options.reuse is not None
        return Compilation(job, say, runner, needed=needed, dump=options.dump).run()


def finish(folder: Path, progress: Progress | None = None) -> Compiled:
    """Write the bundle of a hand-off folder after a run of edgetpu_compiler.

    Raises EdgecError with exit code 1 when the program has to run first, or once more,
    and InputError when the model or the folder has changed.
    """
    runner = HandOff.open(folder)
    job = Job.again(runner.recipe, folder)
    job.check()
    say = Steps(progress, plan=_PLAN)
    return Compilation(job, say, runner, needed=True, finishing=True).run()
