"""Compiles a cascade: each network alone, then all of them into one bundle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from edgec_devices.boards import Target
from edgec_devices.options import path_of
from edgec_devices.temporary import temporary_folder
from edgec_runtime import Bundle, Contents, write_bundle
from edgec_runtime.cascade.fitting import check_bundles
from edgec_runtime.cascade.parameters import NETWORKS

from edgec.catalogue.entries import PREFIX
from edgec.catalogue.fetching import local_file
from edgec.compiler.cascade_samples import write_samples
from edgec.compiler.compilation import (
    COMPLETE_STEPS,
    PLACE_STEPS,
    Compilation,
    Compiled,
    CompiledNetwork,
    PlacedNetwork,
)
from edgec.compiler.edgetpu_together import compile_together
from edgec.compiler.job import Job
from edgec.errors import EdgecError, InputError
from edgec.frontends.cascade_file import CascadeSource, NetworkSource, read_cascade
from edgec.options.compile import CompileOptions
from edgec.steps import Prefixed, Progress, Steps
from edgec.toolchain.edgetpu.runner_option import runner_for
from edgec.version import VERSION

FLOAT_PREFIX = "float "
"""The beginning of the names of steps that compile the float form of a cascade."""
OF_ONE_NETWORK = (
    "task",
    "labels",
    "anchors",
    "preprocess",
    "input_shapes",
    "fix",
    "state",
    "validate",
    "data",
)
"""Options that a single network has: those of a cascade say them in its file."""


def is_cascade(model: Path) -> bool:
    """Return whether a file that is to be compiled is a cascade's."""
    return model.suffix.lower() == ".toml"


def compile_cascade(
    file: Path, options: CompileOptions, progress: Progress | None = None
) -> Compiled:
    """Compile the networks of a cascade.toml into one bundle.

    Raises EdgecError; no bundle is left then.
    """
    source = read_cascade(file)
    check_options(options)
    job = Job(file, options)
    job.check()
    with temporary_folder("cascade") as folder:
        (folder / NETWORKS).mkdir()
        say = Steps(progress, plan=_plan(source, options))
        return _CascadeCompile(job, source, folder, say).run()


def _plan(source: CascadeSource, options: CompileOptions) -> list[str]:
    """Return the steps that the compile of a cascade surely has, in order."""
    names = [network.name for network in source.models()]
    plan = []
    for steps in (PLACE_STEPS, COMPLETE_STEPS):
        plan += [f"{name}: {step}" for name in names for step in steps]
    if _calibrates_crops(source, options):
        plan = [*(f"{FLOAT_PREFIX}{step}" for step in plan), *plan]
    return plan


def _calibrates_crops(source: CascadeSource, options: CompileOptions) -> bool:
    """Return whether networks are calibrated with crops, which float networks find."""
    return options.calibrate is not None and len(source.models()) > 1


def check_options(options: CompileOptions) -> None:
    """Raise InputError for options that are for one network."""
    usual = CompileOptions()
    for name in OF_ONE_NETWORK:
        if getattr(options, name) != getattr(usual, name):
            raise InputError(
                f"{name} is for one network, and a cascade has several",
                at=f"--{name.replace('_', '-')}",
                hint="say it in cascade.toml (docs/cascades.md)",
            )
    if options.reuse is not None:
        raise InputError(
            "a compiled file is re-used for one network",
            at="--reuse",
            hint="leave the option out",
        )
    if (options.edgetpu_compiler or "").startswith("folder:"):
        raise InputError(
            "a folder for edgetpu_compiler is for one network",
            at="--edgetpu-compiler",
            hint="give a path, ssh:// or none",
        )


def network_job(
    file: Path, network: NetworkSource, options: CompileOptions, say: Progress
) -> Job:
    """Return the job of a network with a model of its own.

    Args:
        file: the file of the cascade, beside which the network's files are.
        network: the network.
        options: the options of the cascade.
        say: is called with the progress of a download.
    """
    assert network.model is not None, "read_cascade has seen it"
    model = Path(network.model)
    if not network.model.startswith(PREFIX):
        model = file.parent / model
    task = network.task
    # A file is relative to the cascade's, a name of a task is not.
    if task is not None and task.endswith((".json", ".toml")):
        task = str(file.parent / task)
    labels = None if network.labels is None else file.parent / network.labels
    own = replace(options, task=task, labels=labels, preprocess=network.preprocess)
    return Job(local_file(model, say), own)


@dataclass(frozen=True)
class _CascadeCompile:
    """One compile of a cascade.

    Attributes:
        job: the file and the options of the cascade.
        source: the cascade.
        folder: a folder for the bundles of the networks.
        say: is called with each step.
    """

    job: Job
    source: CascadeSource
    folder: Path
    say: Steps

    def run(self) -> Compiled:
        """Compile all networks, and write the bundle."""
        samples = self._samples()
        compiles = {n.name: self._compile(n, samples) for n in self.source.models()}
        placed: dict[str, PlacedNetwork] = {}
        for name, one in compiles.items():
            with _named(name):
                placed[name] = one.place()

        runner = runner_for(self.job.options.edgetpu_compiler, {})
        placed, shared = compile_together(placed, self._order(), runner, self.say)
        made: dict[str, CompiledNetwork] = {}
        for name, one in compiles.items():
            with _named(name):
                made[name] = one.complete(placed[name])
        self._write(made)
        # As paths within the bundle, since the folder is temporary.
        for name, network in made.items():
            inside = network.path.relative_to(self.folder)
            made[name] = replace(network, path=inside)
        return Compiled(self.job.output, made, self.say.done(), True, shared)

    def _order(self) -> list[str]:
        """Return the networks with a model of their own, the most frequent first."""
        names = [network.name for network in self.source.models()]
        # A detector rests while its objects are followed.
        if self.source.followed is not None:
            return [*names[1:], names[0]]
        return names

    def _samples(self) -> Mapping[str, Path]:
        """Return the calibration data of networks that see crops; {} without photos."""
        photos = path_of(self.job.options.calibrate)
        behind = [n.name for n in self.source.models()[1:]]
        if photos is None or not _calibrates_crops(self.source, self.job.options):
            return {}
        # Crops are those of the float networks, which know best where objects are.
        bundle = self.folder / "float.edgec"
        options = CompileOptions(
            "host", bundle, allow_float=True, cc=self.job.options.cc
        )
        aside = self.folder / "float"
        (aside / NETWORKS).mkdir(parents=True)
        job = Job(self.job.model, options)
        say = Steps(Prefixed(FLOAT_PREFIX, self.say))
        _CascadeCompile(job, self.source, aside, say).run()
        write_samples(bundle, photos, self.folder, self.say)
        return {name: self.folder / f"{name}.npz" for name in behind}

    def _compile(
        self, network: NetworkSource, samples: Mapping[str, Path]
    ) -> Compilation:
        """Return the compile of a network with a model of its own.

        samples: calibration data by network, in place of photos.
        """
        job = network_job(self.job.model, network, self.job.options, self.say)
        calibrate = samples.get(network.name, job.options.calibrate)
        options = replace(
            job.options, output=self.folder / network.path, calibrate=calibrate
        )
        job = replace(job, options=options)
        job.check()
        where = options.edgetpu_compiler
        runner = runner_for(where, {})
        say = Steps(Prefixed(f"{network.name}: ", self.say))
        return Compilation(
            job, say, runner, needed=where is not None, dump=options.dump
        )

    def _write(self, made: Mapping[str, CompiledNetwork]) -> None:
        """Write the bundle of the cascade."""
        cascade = self.source.cascade()
        files: dict[str, bytes] = {}
        manifests = {}
        for network in self.source.models():
            path = made[network.name].path
            with Bundle.open(path) as bundle:
                manifests[network.name] = bundle.manifest
            files[network.path] = path.read_bytes()
        check_bundles(cascade, manifests, str(self.job.model))

        options = self.job.options
        target = Target.parse(options.target, options.also)
        contents = Contents(
            edgec=VERSION,
            name=self.job.model.stem,
            target=target.name,
            board=target.board.name,
            inputs=(),
            outputs=(),
            state=(),
            tensors={},
            segments=(),
            libraries={},
            programs={},
            weights={},
            threads=options.threads,
            labels=None,
            preprocess={},
            task=None,
            toolchain={},
            verification={},
            quantization={},
            license={},
            graph="",
            cascade=cascade,
        )
        write_bundle(self.job.output, contents, files)


@contextmanager
def _named(network: str) -> Iterator[None]:
    """Say in errors which network of the cascade they are of."""
    try:
        yield
    except EdgecError as e:
        e.at = f'network "{network}"' + (f", {e.at}" if e.at else "")
        raise
