"""The parts of our driver that need no stick: sysfs, firmware, links, steps, clocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from edgec_runtime import DeviceError, InputError
from edgec_runtime.edgetpu_file.compiled_file import read_compiled
from edgec_runtime.edgetpu_file.executable import Address, AddressOf, Field
from edgec_runtime.stick import firmware
from edgec_runtime.stick.driver import StickOptions, open_stick, sticks
from edgec_runtime.stick.program import Buffer, Receiving, Sending, link_model, linked
from edgec_runtime.stick.usbfs import LostError, UsbDevice, UsbHandle, transfer_error

from tests.conftest import SHARED

LIBRARY = SHARED / "edgetpu/usb/libedgetpu-x86_64.so.1"
COMPILED = SHARED / "edgetpu/compiled"


def device(root: Path, port: str, **values: str) -> None:
    folder = root / "sys/bus/usb/devices" / port
    folder.mkdir(parents=True)
    for name, text in values.items():
        (folder / name).write_text(text + "\n")


def stick(root: Path, port: str, ids: str, number: int, speed: str = "5000") -> None:
    vendor, product = ids.split(":")
    device(
        root,
        port,
        idVendor=vendor,
        idProduct=product,
        busnum="2",
        devnum=str(number),
        speed=speed,
    )


def test_sticks_of_a_machine(tmp_path: Path) -> None:
    """Those with firmware come first; hubs, interfaces and others are left out."""
    assert sticks(str(tmp_path)) == []
    stick(tmp_path, "2-1", "1a6e:089a", 7, "480")
    stick(tmp_path, "2-2.4", "18d1:9302", 12)
    stick(tmp_path, "2-3", "046d:c52b", 3)
    device(tmp_path, "2-1:1.0", bInterfaceClass="ff")
    device(tmp_path, "usb2", idVendor="1d6b", idProduct="0003")
    assert sticks(str(tmp_path)) == [
        UsbDevice("2-2.4", 0x18D1, 0x9302, f"{tmp_path}/dev/bus/usb/002/012", 5000),
        UsbDevice("2-1", 0x1A6E, 0x089A, f"{tmp_path}/dev/bus/usb/002/007", 480),
    ]


def test_a_stick_without_a_node_is_lost(tmp_path: Path) -> None:
    stick(tmp_path, "2-1", "18d1:9302", 7)
    with pytest.raises(LostError) as e:
        UsbHandle(sticks(str(tmp_path))[0])
    assert e.value.hint == "plug the stick in again"


def test_no_stick(tmp_path: Path) -> None:
    with pytest.raises(DeviceError) as e:
        open_stick(StickOptions(root=str(tmp_path)))
    assert e.value.what == "there is no Edge TPU on USB"
    with pytest.raises(DeviceError) as e:
        open_stick(StickOptions(root=str(tmp_path), port="1-1"))
    assert "at the port 1-1" in e.value.what


def test_a_stick_belongs_to_one_handle(tmp_path: Path) -> None:
    stick(tmp_path, "2-1", "18d1:9302", 7)
    node = tmp_path / "dev/bus/usb/002/007"
    node.parent.mkdir(parents=True)
    node.touch()
    first = UsbHandle(sticks(str(tmp_path))[0])
    with pytest.raises(DeviceError) as e:
        UsbHandle(sticks(str(tmp_path))[0])
    assert "in use by another program" in e.value.what
    first.close()
    UsbHandle(sticks(str(tmp_path))[0]).close()


@pytest.mark.parametrize(
    ("number", "hint"),
    [(19, "plug the stick in again"), (71, "cable"), (12, "usbfs_memory_mb")],
)
def test_a_failed_transfer_has_one_action(number: int, hint: str) -> None:
    """ENODEV, EPROTO, ENOMEM."""
    error = transfer_error(UsbDevice("1-1", 0, 0, "/dev/bus/usb/001/002", 5000), number)
    assert hint in str(error.hint)
    assert error.at == "/dev/bus/usb/001/002"


@pytest.mark.shared
def test_firmware_in_a_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(firmware.VARIABLE, raising=False)
    monkeypatch.setenv("EDGEC_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    folder = tmp_path / "usr/lib/aarch64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libedgetpu.so.1.0").write_bytes(b"another library")
    with pytest.raises(DeviceError) as e:
        firmware.find_firmware(root=str(tmp_path))
    cached = tmp_path / "cache/files" / firmware.FIRMWARE_SHA256
    assert e.value.hint is not None
    assert e.value.hint.startswith(f"curl -fL --create-dirs -o {cached}/")
    (folder / "libedgetpu.so.1").symlink_to(LIBRARY)
    found = firmware.find_firmware(root=str(tmp_path))
    assert len(found) == firmware.FIRMWARE_BYTES
    # what the command brings is found, too
    (folder / "libedgetpu.so.1").unlink()
    cached.mkdir(parents=True)
    (cached / "apex_latest_single_ep.bin").write_bytes(found)
    assert firmware.find_firmware(root=str(tmp_path)) == found


def test_a_file_without_firmware(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = tmp_path / "wrong.bin"
    wrong.write_bytes(bytes.fromhex("021e570214fac22fc231c223") + bytes(20000))
    monkeypatch.setenv(firmware.VARIABLE, str(wrong))
    with pytest.raises(InputError) as e:
        firmware.find_firmware()
    assert str(wrong) in e.value.what


def test_an_unknown_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEC_EDGETPU_CLOCK", "hihg")
    with pytest.raises(InputError) as e:
        StickOptions().clock_name()
    assert 'did you mean "high"?' in e.value.what


@pytest.mark.parametrize("bit", [0, 3, 32, 61, 64])
def test_linked_bits(bit: int) -> None:
    """The upper half of an address stands at any bit; the bits around it stay."""
    field = Field(Address(AddressOf.INPUT, 0, "x", True), bit)
    addresses: dict[Buffer, int] = {(AddressOf.INPUT, "x"): 0x89ABCDEF_00000000}
    for around in (0, 0xFF):
        before = bytes([around]) * 12
        value = int.from_bytes(linked(before, (field,), addresses), "little")
        assert value >> bit & 0xFFFFFFFF == 0x89ABCDEF
        other = ~(0xFFFFFFFF << bit)
        assert value & other == int.from_bytes(before, "little") & other


@pytest.mark.shared
def test_chunks() -> None:
    """A packet is a header and parts of at most the size of a transfer."""
    path = COMPILED / "ricardodeazambuja+LibrEdgeTPU/dense_1024_edgetpu.tflite"
    data = path.read_bytes()
    (package,) = read_compiled(data, "dense").packages
    model = link_model(package, data, 256 << 10)
    assert model.caching is not None
    sent = [
        [urb.length for urb in step.urbs]
        for step in model.caching.new_run().steps
        if isinstance(step, Sending)
    ]
    assert sent == [[8, 2608], [8, *[256 << 10] * 4, 1056768 - (1 << 20)]]
    run = model.main.new_run()
    assert [len(s.memory) for s in run.steps if isinstance(s, Receiving)] == [1024]


@pytest.mark.shared
def test_a_program_that_needs_descriptors() -> None:
    """Its hints leave transfers out, which libedgetpu refuses over USB, too."""
    path = COMPILED / "google-coral+test_data/keras_lstm_mnist_ptq_edgetpu.tflite"
    data = path.read_bytes()
    (package,) = read_compiled(data, "lstm").packages
    with pytest.raises(ValueError, match="depend on the data"):
        link_model(package, data, 1 << 20)
