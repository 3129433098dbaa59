"""Frames survive whatever a console does between them, and none that was damaged is
taken for one.
"""

from __future__ import annotations

import random

import pytest
from edgec_runtime.device_end.wire import (
    DATA,
    ESCAPE,
    FLAG,
    INSERTED,
    MAX_CHUNK,
    MAX_MESSAGE,
    Decoder,
    Frame,
    pack,
    unpack,
)
from hypothesis import given
from hypothesis import strategies as st

FRAMES = st.builds(
    Frame,
    st.integers(0, 255),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.binary(max_size=300),
)
# No flag in it: a frame that starts inside somebody else's text is another matter, see
# below.
NOISE = st.binary(max_size=60).map(lambda b: b.replace(FLAG, b"?"))


@given(st.lists(st.tuples(NOISE, FRAMES), max_size=5), st.integers(1, 50))
def test_frames_are_found_between_noise_in_pieces_of_any_size(
    parts: list[tuple[bytes, Frame]], piece: int
) -> None:
    stream = b"".join(noise + frame.encode() for noise, frame in parts)
    decoder = Decoder()
    found = [
        f
        for i in range(0, len(stream), piece)
        for f in decoder.feed(stream[i : i + piece])
    ]
    assert found == [frame for _, frame in parts]


@given(FRAMES)
def test_nothing_that_a_console_acts_on_is_sent(frame: Frame) -> None:
    wire = frame.encode()
    assert not set(wire) & set(INSERTED)
    assert wire[:1] == wire[-1:] == FLAG
    assert FLAG not in wire[1:-1]


def test_what_a_console_puts_in_is_taken_out() -> None:
    frame = Frame(DATA, 1, 2, bytes(range(256)))
    # folded, and XON, XOFF, DEL in it
    wire = b"\r\n".join(frame.encode()[i : i + 7] for i in range(0, 400, 7))
    assert list(Decoder().feed(wire.replace(b"a", b"\x11a\x13\x7f"))) == [frame]


def test_a_noise_line_costs_one_frame_at_most() -> None:
    frames = [Frame(DATA, 1, i, b"x" * 50) for i in range(3)]
    first, second, third = (f.encode() for f in frames)
    broken = second[:20] + b"\r\n[ 1.0] usb 1-1: ~reset~ device\r\n" + second[20:]
    assert list(Decoder().feed(first + broken + third)) == [frames[0], frames[2]]


def test_damage_is_never_taken_for_a_frame() -> None:
    rng = random.Random(1)
    frame = Frame(DATA, 7, 9, rng.randbytes(200))
    wire = frame.encode()
    for _ in range(3000):
        bad = bytearray(wire)
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(bad))
            kind = rng.random()
            if kind < 0.5:
                bad[at] ^= 1 << rng.randrange(8)
            elif kind < 0.75:
                del bad[at]
            else:
                bad.insert(at, rng.randrange(256))
        assert all(f == frame for f in Decoder().feed(bytes(bad)))


@pytest.mark.parametrize(
    "body", [b"", b"}", b"short", b"abc}", FLAG * 50, b"\x00" * 100]
)
def test_what_is_no_frame(body: bytes) -> None:
    assert list(Decoder().feed(FLAG + body + FLAG)) == []


def test_endless_noise_takes_no_memory() -> None:
    decoder = Decoder()
    for _ in range(200):
        assert list(decoder.feed(b"y" * 4096)) == []
    assert len(decoder._rest) <= 3 * MAX_CHUNK
    frame = Frame(DATA, 1, 1, b"still works")
    assert list(decoder.feed(frame.encode())) == [frame]


def test_overhead_on_compressed_data() -> None:
    data = random.Random(2).randbytes(1 << 20)
    wire = sum(
        len(Frame(DATA, 1, i, data[i : i + 1024]).encode())
        for i in range(0, len(data), 1024)
    )
    assert len(data) / wire > 0.92
    # the worst case
    assert len(Frame(DATA, 1, 0, (ESCAPE + FLAG) * 512).encode()) < 2 * 1024 + 40


@given(st.dictionaries(st.text(), st.integers() | st.text()), st.binary(max_size=500))
def test_messages(head: dict[str, int | str], blob: bytes) -> None:
    assert unpack(pack(head, blob)) == (head, blob)


def test_messages_that_are_none() -> None:
    import zlib

    bomb = zlib.compress(b"{}\n" + bytes(MAX_MESSAGE + 1), 9)
    for bad in (
        b"",
        b"junk",
        pack({})[:-3],
        zlib.compress(b"[]\n"),
        zlib.compress(b"{\n"),
        bomb,
        zlib.compress(b"\xff"),
    ):
        with pytest.raises(ValueError):  # noqa: PT011
            unpack(bad)
