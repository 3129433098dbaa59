"""cascade.toml: the networks of a cascade, with the models that they are made of (the
format: docs/cascades.md).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from edgec_devices.decoding import from_toml
from edgec_runtime.cascade.parameters import (
    Cascade,
    CascadeNetwork,
    check_networks,
)
from edgec_runtime.rows import parameter, read

from edgec.errors import InputError

_SEE = "see docs/cascades.md"


@dataclass(frozen=True)
class NetworkSource(CascadeNetwork):
    """A network of cascade.toml; the texts of the fields describe it."""

    model: str | None = parameter(
        "the model's file, relative to cascade.toml, or models:NAME", None
    )
    task: str | None = parameter("as --task of compile", None)
    labels: str | None = parameter("as --labels of compile", None)
    preprocess: str | None = parameter("as --preprocess of compile", None)

    def row(self) -> CascadeNetwork:
        """Return the network as a manifest has it, without its model."""
        values = {f.name: getattr(self, f.name) for f in fields(CascadeNetwork)}
        return CascadeNetwork(**values)


@dataclass(frozen=True)
class CascadeSource(Cascade):
    """A cascade of cascade.toml."""

    networks: tuple[NetworkSource, ...] = parameter(
        "the networks, the detector first, each behind those that it needs"
    )

    def cascade(self) -> Cascade:
        """Return the cascade as a manifest has it."""
        rows = tuple(network.row() for network in self.networks)
        return Cascade(rows, self.objects, self.every)

    def models(self) -> tuple[NetworkSource, ...]:
        """Return the networks with a model of their own."""
        return tuple(network for network in self.networks if network.like is None)


def read_cascade(path: Path) -> CascadeSource:
    """Return the cascade of a file. Raises InputError."""
    try:
        value = from_toml(path, dict[str, Any], _SEE)
    except FileNotFoundError:
        raise InputError(
            f"no such file: {path}", hint="give a model, or a cascade.toml"
        ) from None
    try:
        source = read(CascadeSource, value, "the cascade")
        check_networks(source.networks, "the cascade")
        for network in source.networks:
            _check_model(network)
    except InputError as e:
        # The reader of rows knows no file.
        raise InputError(e.what, at=str(path), hint=_hint(e)) from e
    return source


def _hint(e: InputError) -> str:
    """Return the hint of an error, with the page that describes the file."""
    hint = e.hint or "correct it"
    return hint if _SEE in hint else f"{hint}; {_SEE}"


def _check_model(network: NetworkSource) -> None:
    """Refuse a network without a model, and one with two."""
    name = network.name
    model_keys = {
        "model": network.model,
        "task": network.task,
        "labels": network.labels,
        "preprocess": network.preprocess,
    }
    if network.like is None and network.model is None:
        raise InputError(
            f'the network "{name}" has no model',
            hint="name its file as model, or an earlier network as like",
        )
    keys = [key for key, value in model_keys.items() if value is not None]
    if network.like is not None and keys:
        raise InputError(
            f'the network "{name}" has {keys[0]}, and is like "{network.like}"',
            hint=f"leave out {keys[0]}, or like",
        )
