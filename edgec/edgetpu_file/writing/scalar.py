"""The parts of a program that the scalar core executes.

The order of the words is that of docs/isa/scalar.md in FrederikRogalski/tinycoral, and
was compared with files of edgetpu_compiler 16; its words that compute an address are
shorter there than in older versions.
"""

from __future__ import annotations

from edgec_runtime.edgetpu_file.executable import AddressOf

from edgec.edgetpu_file.programs import WIDE_UNIT
from edgec.edgetpu_file.simulator.host import INPUT, INTERRUPT, OUTPUT, PARAMETERS
from edgec.edgetpu_file.writing.words import ALL_TILES, Values, Words, flags, loops

ALL_UNITS = 0x3FF
_COPY_UNITS = 0x20
ALL_COUNTERS = 0x7FFFF
TILE_COUNTERS = 0x1FFFF
"""Those that are set back between the parts of a program."""
_PRODUCER_COUNTER = 0x20000
_MOVE, _MOVE_REGISTER, _PUSH, _REQUEST = 0x2F, 0x0F, 0xA, 0xC
_IDLE_UNITS = 0xC
_CREDIT = 8191
_ACTIVATION_UNIT = 8
_ACTIVATION_BUFFER = 16384
"""Units of activations in the buffer of an infeed."""
_PARAMETER_BUFFER = 1024


def fence(words: Words, counters: int = 0, *, signal: bool = False) -> None:
    """Let the tiles finish; `signal`: the scalar core waits for it."""
    words.add(
        "tile_fence",
        {
            "tiles": ALL_TILES,
            "counters": counters,
            "units": ALL_UNITS,
            "signal": int(signal),
        },
    )
    if signal:
        words.add("scalar_fence", _signalled())


def _signalled() -> Values:
    return {
        "tiles": ALL_TILES,
        "wait_for_signal": 1,
        "signal_tiles": ALL_TILES,
        "units": _IDLE_UNITS,
    }


def begin(words: Words, *, caching: bool) -> None:
    """Begin a program."""
    words.add("start")
    words.add(
        "tile_fence",
        {
            "tiles": ALL_TILES,
            "?43": int(caching),
            "counters": ALL_COUNTERS,
            "units": ALL_UNITS,
            "signal": 1,
        },
    )
    words.add("scalar_fence", _signalled() | {"counters": 0x1FF, "units": 0x1F})
    words.address(AddressOf.PARAMETER, 1, upper=False)
    words.address(AddressOf.PARAMETER, 0, upper=True)


def request(words: Words, register: int, size: int, tag: int) -> None:
    """Push the parts of a request from registers, and issue it.

    The two halves of the address are in `register` and the next; two after these get
    size and tag.
    """
    words.add("scalar", {"act": _PUSH, "act.register": register})
    words.add("scalar", _push(1, register + 1) | _move(register + 2, size))
    words.add("scalar", _push(2, register + 2) | _move(register + 3, tag))
    words.add("scalar", _push(3, register + 3))
    words.add("scalar", {"act": _REQUEST})


def _push(at: int, register: int) -> Values:
    return {"act": _PUSH, "act.at": at, "act.register": register}


def _move(register: int, value: int) -> Values:
    return {"alu": _MOVE, "alu.to": register, "immediate": value}


def copy(words: Words, to: int, source: int) -> None:
    """Copy a register."""
    words.add("scalar", {"alu": _MOVE_REGISTER, "alu.to": to, "immediate": source})


def end(words: Words, *, caching: bool) -> None:
    """Let the tiles finish, raise the interrupt and end the program."""
    last: Values = {"tiles": ALL_TILES, "units": ALL_UNITS, "signal": 1, "?109": 3}
    words.add("tile_fence", last | {"?43": int(caching)})
    words.add("scalar_fence", _signalled())
    first = 2 if caching else 4
    words.add("scalar", _move(first, 0))
    words.add("scalar", _move(first + 1, 0))
    if caching:
        copy(words, 4, 3)
        copy(words, 5, 2)
    else:
        copy(words, 6, 5)
        copy(words, 7, 4)
    request(words, first + 2, 0, INTERRUPT)
    words.add("halt", {"?14": 4})
    for _ in range(4):
        words.add("scalar")
    words.add("end", {"bits": 128})


def want_parameters(words: Words, size: int) -> None:
    """Request all parameters from the host."""
    copy(words, 3, 1)
    copy(words, 2, 0)
    copy(words, 4, 3)
    copy(words, 5, 2)
    request(words, 4, size, PARAMETERS)
    units = size // WIDE_UNIT
    values = _buffer(units, _PARAMETER_BUFFER, 3)
    values |= flags(121, 124, 136, 174, 177, 178, 199, 215)
    values["?157"] = values.pop("partly")
    rows = min(units // 2, _PARAMETER_BUFFER)
    values["?183"] = int(units % 2 == 0 or rows == _PARAMETER_BUFFER)
    values["?184"] = -rows % (1 << 15)
    words.add("pop", values)


def _buffer(units: int, size: int, levels: int) -> Values:
    """Return the walk through a buffer that so many units go through."""
    passes, last = divmod(units, size)
    if not last:
        passes -= 1
    counts = (size, passes + 1)
    values = loops("buffer", counts, (1, 0), levels)
    partly = int(last > 0)
    values |= {"partly": partly}
    if last:
        values |= {"last_more": last - 1, "last_negative": size - last}
    return values


def send_parameters(
    words: Words, first: int, units: int, tile: int, lanes: int
) -> None:
    """Send a part of the parameters to a tile.

    Args:
        words: the program
        first: the first of their units of 64 bytes
        units: how many
        tile: its number
        lanes: units of a row
    """
    values = _buffer(units, _PARAMETER_BUFFER, 3)
    values |= flags(157, 160, 172, 311, 314, 336, 352, 392)
    values["?203"] = values.pop("partly")
    values |= {
        "buffer": first % (2 * _PARAMETER_BUFFER),
        "wait": (first + 1) % (1 << 16),
        "to_tiles": 1 << tile,
        "words_more": 15,
        "lanes_more": lanes - 1,
    }
    words.add("infeed", values)


def want_input(words: Words, size: int) -> None:
    """Request the input from the host."""
    words.add("scalar_fence", {"counters": 0x5, "units": _IDLE_UNITS})
    fence(words, signal=True)
    words.add("tile_fence", {"tiles": ALL_TILES, "units": _COPY_UNITS})
    words.address(AddressOf.INPUT, 10, upper=True)
    words.address(AddressOf.INPUT, 11, upper=False)
    credit: Values = {"counters": 0x4, "value": _CREDIT, "units": _IDLE_UNITS}
    words.add("scalar_fence", credit)
    words.add("scalar_fence", {"counters": 0x1, "units": _IDLE_UNITS})
    values = _activations(size // _ACTIVATION_UNIT)
    values |= flags(121, 124, 140, 174, 178, 199, 215)
    values["?157"] = values.pop("partly")
    words.add("pop", values)
    for to, source in ((5, 11), (4, 10), (6, 5), (7, 4)):
        copy(words, to, source)
    request(words, 6, size, INPUT)


def _activations(units: int) -> Values:
    """Return the walk of activations through their buffer, which they fit."""
    if units == 1:
        return {"activations": 1, "buffer.step0": 1, "partly": 0}
    return _buffer(units, _ACTIVATION_BUFFER, 3) | {"activations": 1}


def send_input(words: Words, first: int, units: int, tiles: int) -> None:
    """Send a part of the input to tiles; `first` and `units` are of 8 bytes."""
    values = _activations(units)
    values |= flags(157, 160, 176, 311, 336, 352, 392)
    values["?203"] = values.pop("partly")
    values |= {
        "buffer": first,
        "wait": first + 1,
        "to_tiles": tiles,
        "words_more": 15,
        "lanes_more": 3,
    }
    words.add("infeed", values)


def begin_output(words: Words) -> None:
    """Prepare the request of the output."""
    fence(words, signal=True)
    words.address(AddressOf.OUTPUT, 10, upper=True)
    words.address(AddressOf.OUTPUT, 11, upper=False)
    copy(words, 5, 11)
    copy(words, 4, 10)


def want_output(words: Words, size: int) -> None:
    """Announce the output to the host."""
    copy(words, 6, 5)
    copy(words, 7, 4)
    request(words, 6, size, OUTPUT)


def take_output(words: Words, units: int) -> None:
    """Pass a part of the output on to the host; `units` are of 8 bytes."""
    values: Values = {"units.more0": units - 1, "to": 3, "?222": 0x7F}
    if units == 1:
        values["units.step0"] = 1
    words.add("outfeed", values)


def end_output(words: Words, sends: int) -> None:
    """Wait until tiles have sent so often, the input's sends among them."""
    fence(words, TILE_COUNTERS)
    words.add(
        "scalar_fence",
        {
            "tiles": ALL_TILES,
            "counters": 0x20,
            "threshold5": sends,
            "wait": 0x20,
            "units": _IDLE_UNITS,
        },
    )
    fence(words, _PRODUCER_COUNTER, signal=True)
