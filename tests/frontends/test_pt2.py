"""Files of PyTorch where PyTorch is not installed, and those that say no shapes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from edgec.errors import InputError
from edgec.frontends import read_model


def test_without_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    (tmp_path / "m.pt2").write_bytes(b"")
    with pytest.raises(InputError, match="a network of PyTorch needs") as e:
        read_model(tmp_path / "m.pt2")
    assert "edgec[torch]" in str(e.value)


@pytest.mark.parametrize("name", ["m.pt", "m.PTH", "m.ckpt"])
def test_code_and_weights_alone(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(InputError, match="has no graph with shapes") as e:
        read_model(tmp_path / name)
    assert "torch.export.export(model.eval(), (example,))" in str(e.value)
    assert "torch.export.save" in str(e.value)
