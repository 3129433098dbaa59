"""Ready cascades: what the files say, and what their names stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgec.catalogue.entries import PREFIX, catalogue, entries, ready_cascades
from edgec.catalogue.fetching import local_file
from edgec.errors import InputError
from edgec.frontends.cascade_file import read_cascade

NAMES = {entry.name for one in catalogue() for entry in one.entries}


@pytest.mark.parametrize("name", ready_cascades())
def test_it_is_a_cascade_of_networks_of_the_catalogue(name: str) -> None:
    cascade = ready_cascades()[name]
    source = read_cascade(cascade.file)
    models = [network.model for network in source.models()]
    assert models == [f"{PREFIX}{network}" for network in cascade.networks]
    assert set(cascade.networks) <= NAMES
    assert name not in NAMES
    assert cascade.purpose[0].islower()


def test_a_name_stands_for_its_file_and_all_of_its_networks() -> None:
    file = local_file(Path("models:faces"))
    assert file.name == "faces.toml"
    found = [entry.name for entry in entries(["models:faces", "iris", "faces-irises"])]
    assert found == ["face-near", "face-mesh", "iris", "face-mesh-attention"]
    with pytest.raises(InputError, match='no "face"; did you mean "faces"'):
        entries(["face"])
