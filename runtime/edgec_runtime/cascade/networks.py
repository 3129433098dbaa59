"""Opens the bundles of all networks of a bundle, and checks them together."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Callable, Dict, List, Optional

from ..bundle.archive import Bundle
from ..model.native import Painting
from ..session.vision import Vision
from .fitting import check_bundles
from .parameters import CascadeNetwork
from .runner import CascadeRunner, FrameRunner, Infer, Network


class OpenedNetworks:
    """The networks of a bundle, which are open until `close`; a context manager.

    Attributes:
        cascade: the cascade; None for a bundle with one network
        bundles: the bundle of each network that has its own model, by name; for a bundle
            with one network the bundle itself
    """

    def __init__(self, bundle: Bundle) -> None:
        """Open the networks of a bundle.

        Raises:
            BundleError: the bundle of a network is damaged
            InputError: the networks do not fit together
        """
        self.cascade = bundle.manifest.cascade
        self.bundles: Dict[str, Bundle] = {}
        self._visions: Dict[str, Vision] = {}
        with ExitStack() as stack:
            if self.cascade is None:
                self.bundles[bundle.manifest.name] = bundle
            else:
                for row in self.cascade.networks:
                    if row.like is None:
                        inner = bundle.network(row.name)
                        self.bundles[row.name] = stack.enter_context(inner)
                manifests = {name: b.manifest for name, b in self.bundles.items()}
                check_bundles(self.cascade, manifests, str(bundle.path))
            # No error came, so from here on `close` closes them.
            self._stack = stack.pop_all()

    def vision(self, name: str) -> Vision:
        """Return the pre- and post-processing of a network with its own model."""
        # Networks on different crops that run the same bundle share it.
        if name not in self._visions:
            self._visions[name] = Vision(self.bundles[name])
        return self._visions[name]

    @property
    def painting(self) -> Optional[Painting]:
        """The C for effects, which a network of landmarks has; None if none has it."""
        paintings = (self.vision(name).painting for name in self.bundles)
        return next((p for p in paintings if p is not None), None)

    def runner(self, infer: Callable[[str], Infer]) -> FrameRunner:
        """Return the networks, ready to run on frames.

        Args:
            infer: returns the function that runs the bundle of a name
        """
        if self.cascade is None:
            (name,) = self.bundles
            row = CascadeNetwork(name)
            return FrameRunner([Network(row, self.vision(name), infer(name))])
        networks: List[Network] = []
        for row in self.cascade.networks:
            model = row.like or row.name
            networks.append(Network(row, self.vision(model), infer(model)))
        return CascadeRunner(self.cascade, networks)

    def close(self) -> None:
        """Close the bundles of the networks of a cascade."""
        self._stack.close()

    def __enter__(self) -> OpenedNetworks:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
