"""Names from files, in what is written for other programs: a name stays a name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from edgec_devices.package import package
from edgec_runtime import Bundle, Preprocess, TensorInfo, write_bundle
from edgec_runtime.device_end.bundles import machine_target
from edgec_runtime.device_end.disk import Refused
from edgec_runtime.device_end.units import unit_name, unit_text
from edgec_runtime.vision.preprocess import bind

from edgec.emit.literals import commented
from edgec.exporting import export, frigate
from edgec.exporting.frigate import Section, document
from tests.devices.test_package import members, untar
from tests.runtime import tiny_model

NAMES = (
    "net\nmodel:\n  path: /etc/shadow",
    "net\r\n  input_dtype: float",
    "net\u2028key: value\u0085other: value",
    'net" # no comment\nkey: 1',
    "net\\\nExecStart=/bin/true",
    "net: {a: b}",
    "- net",
    "&net *net !!python/object:os.system",
    "# net",
    "%YAML 1.1\n---\n...",
    "true",
    "No",
    "1e3",
    "0x10",
    "~",
    "",
    " net ",
    "net\x00\x07\x1b[2J\x7f\ufeff",
    "net */ int evil; /*",
    "*/*/ /**/ \\",
    "net ??/",
    "${CMAKE_COMMAND} $(shell id) `id` ;id",
    "nét 网络 🦊",
)


@pytest.mark.parametrize("name", NAMES)
def test_yaml_reads_back_as_it_was(name: str) -> None:
    section: Section = {name: name, "inner": {"key": name, name: 5}, "last": "plain"}
    assert yaml.safe_load(document(section)) == section


@pytest.mark.parametrize("name", NAMES)
def test_a_configuration_of_frigate_has_its_own_keys_alone(name: str) -> None:
    info = TensorInfo("x", (1, 8, 8, 3), "|u1")
    preprocess: Preprocess = bind(info)
    picture = frigate.DetectorInput(name, info, preprocess, (8, 8))
    text = frigate._configuration(picture, "onnx", "yolo-generic")
    loaded = yaml.safe_load(text)
    assert loaded.keys() == {"detectors", "model"}
    assert loaded["detectors"] == {"onnx": {"type": "onnx"}}
    assert loaded["model"].keys() == {
        "path",
        "labelmap_path",
        "model_type",
        "width",
        "height",
        "input_tensor",
        "input_pixel_format",
        "input_dtype",
    }
    assert loaded["model"]["path"] == f"{frigate.PLACE}/{name}/{name}.onnx"


@pytest.mark.parametrize("name", NAMES)
def test_a_comment_of_c_ends_where_it_is_to_end(name: str) -> None:
    text = f"/* Model {commented(name)}. */"
    assert re.sub(r"/\*.*?\*/", "", text, flags=re.S) == ""
    assert text.count("/*") == 1
    assert "\n" not in text


@pytest.mark.parametrize("name", NAMES)
def test_no_unit_of_systemd_has_it(name: str) -> None:
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        with pytest.raises(Refused):
            unit_name(name)
    with pytest.raises(Refused):
        unit_text("app", f"/srv/{name} x", ["/srv/main"], "/etc/default/app")


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("parts")
    return tiny_model.build_library(folder), tiny_model.build_program(folder)


@pytest.mark.cc
@pytest.mark.parametrize("name", NAMES)
def test_a_bundle_of_that_name_is_packaged_and_exported(
    name: str, parts: tuple[Path, Path], tmp_path: Path
) -> None:
    library, program = parts
    manifest, files = tiny_model.parts(library, {machine_target(): program})
    manifest["name"] = name
    manifest["segments"][1]["tflite"] = "segments/relu.tflite"
    files["segments/relu.tflite"] = b"no real file"
    write_bundle(tmp_path / "net.edgec", manifest, files)
    with Bundle.open(tmp_path / "net.edgec") as bundle:
        assert bundle.manifest.name == name

    control = untar(members(package(tmp_path / "net.edgec").data)["control.tar.gz"])
    lines = control["./control"][1].decode().splitlines()
    keys = [line.partition(":")[0] for line in lines if not line.startswith(" ")]
    assert keys[0] == "Package"
    assert len(keys) == len(set(keys)) == 9
    assert all(line.isprintable() for line in lines)

    export(tmp_path / "net.edgec", {"tflite": tmp_path / "out"})
    title, *paragraphs = (tmp_path / "out" / "README.md").read_text().split("\n\n")
    assert title.startswith("# ")
    assert "\n" not in title
    assert len(paragraphs) == 3
