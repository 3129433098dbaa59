"""The networks of a bundle for devices, which take one network's bundle each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

from edgec_devices.device import Device
from edgec_devices.temporary import temporary_folder
from edgec_runtime import Bundle
from edgec_runtime.cascade.networks import OpenedNetworks
from edgec_runtime.cascade.runner import Infer
from edgec_runtime.session.meters import Meter
from edgec_runtime.vision.camera import CameraFrame
from edgec_runtime.vision.tasks.base import Result

from edgec.ir import Array


@contextmanager
def networks_as_files(bundle: Bundle) -> Iterator[Mapping[str, Bundle]]:
    """Yield the bundle of each network by name, as a file of its own.

    Devices are sent files, which the bundles within a bundle are not.
    """
    cascade = bundle.manifest.cascade
    if cascade is None:
        yield {bundle.manifest.name: bundle}
        return
    with (
        OpenedNetworks(bundle) as opened,
        temporary_folder("networks") as folder,
        ExitStack() as stack,
    ):
        bundles = {}
        for name in opened.bundles:
            path = folder / f"{name}.edgec"
            path.write_bytes(bundle.read(cascade.network(name).path))
            bundles[name] = stack.enter_context(Bundle.open(path))
        yield bundles


def result_on(device: Device, bundle: Bundle, photo: Array, threads: int) -> Result:
    """Return what is in a photo, each network's inferences run by a device.

    Inputs and results are computed here, with the bits that the device would give.
    Raises the errors of `Device.run`.
    """
    with networks_as_files(bundle) as bundles, OpenedNetworks(bundle) as opened:
        # A session of its own for each inference: a device keeps none between two.
        def infer_by(name: str) -> Infer:
            def infer(inputs: Mapping[str, Array], meter: Meter) -> dict[str, Array]:
                return device.run(bundles[name], inputs, threads)

            return infer

        return opened.runner(infer_by).run(CameraFrame.of(photo))
