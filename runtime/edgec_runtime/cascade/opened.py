"""The bundles of a cascade's networks, opened and checked together."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Callable, Dict, List

from ..bundle.archive import Bundle
from ..errors import BundleError
from ..session.vision import Vision
from .fitting import check_bundles
from .parameters import Cascade
from .runner import Infer, Network


class OpenedCascade:
    """The opened bundles of a cascade, until `close`; it is a context manager.

    Attributes:
        cascade: the cascade
        bundles: the bundle of each network with a model of its own, by name
    """

    def __init__(self, bundle: Bundle) -> None:
        """Open the networks of a bundle.

        Raises:
            BundleError: the bundle is no cascade, or a network's is damaged
            InputError: the networks do not fit together
        """
        self.cascade = cascade_of(bundle)
        self.bundles: Dict[str, Bundle] = {}
        with ExitStack() as opened:
            for row in self.cascade.networks:
                if row.like is None:
                    inner = bundle.network(row.name)
                    self.bundles[row.name] = opened.enter_context(inner)
            manifests = {name: b.manifest for name, b in self.bundles.items()}
            check_bundles(self.cascade, manifests, str(bundle.path))
            # All are sound: from here on `close` closes them.
            self._opened = opened.pop_all()

    def networks(self, infer: Callable[[str], Infer]) -> List[Network]:
        """Return the networks, ready to run, in the order of the cascade.

        Args:
            infer: returns the function that runs the bundle of this name
        """
        # One for each bundle: a network on two crops decodes both alike.
        visions = {name: Vision(inner) for name, inner in self.bundles.items()}
        networks: List[Network] = []
        for row in self.cascade.networks:
            model = row.like or row.name
            networks.append(Network(row, visions[model], infer(model)))
        return networks

    def close(self) -> None:
        """Close the bundles of the networks."""
        self._opened.close()

    def __enter__(self) -> OpenedCascade:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def cascade_of(bundle: Bundle) -> Cascade:
    """Return the cascade of a bundle; raises BundleError where it is none."""
    if bundle.manifest.cascade is None:
        raise BundleError(
            "the bundle is one network, not a cascade",
            at=str(bundle.path),
            hint="run it with a Session",
        )
    return bundle.manifest.cascade
