"""The bundles of a bundle's networks, opened and checked together."""

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
    """The networks of a bundle, opened until `close`; it is a context manager.

    Attributes:
        cascade: how they work together; None: there is one
        bundles: the bundle of each network with a model of its own, by name; that of
            the only one is the bundle itself
    """

    def __init__(self, bundle: Bundle) -> None:
        """Open the networks of a bundle.

        Raises:
            BundleError: a network's is damaged
            InputError: the networks do not fit together
        """
        self.cascade = bundle.manifest.cascade
        self.bundles: Dict[str, Bundle] = {}
        self._visions: Dict[str, Vision] = {}
        with ExitStack() as opened:
            if self.cascade is None:
                self.bundles[bundle.manifest.name] = bundle
            else:
                for row in self.cascade.networks:
                    if row.like is None:
                        inner = bundle.network(row.name)
                        self.bundles[row.name] = opened.enter_context(inner)
                manifests = {name: b.manifest for name, b in self.bundles.items()}
                check_bundles(self.cascade, manifests, str(bundle.path))
            # All are sound: from here on `close` closes them.
            self._opened = opened.pop_all()

    def vision(self, name: str) -> Vision:
        """Return what makes the inputs and results of a network with a model."""
        # One for each bundle: a network on two crops decodes both alike.
        if name not in self._visions:
            self._visions[name] = Vision(self.bundles[name])
        return self._visions[name]

    @property
    def painting(self) -> Optional[Painting]:
        """The C for effects of a network that has landmarks; None where none has it."""
        found = (self.vision(name).painting for name in self.bundles)
        return next((one for one in found if one is not None), None)

    def runner(self, infer: Callable[[str], Infer]) -> FrameRunner:
        """Return the networks, ready to run on frames.

        Args:
            infer: returns the function that runs the bundle of this name
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
        self._opened.close()

    def __enter__(self) -> OpenedNetworks:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
