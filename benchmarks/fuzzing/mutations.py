"""Damages bytes, lines of text and trees of plain values, by a seeded generator."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass
from typing import Any

NUMBERS = (
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    127,
    128,
    255,
    256,
    32767,
    65535,
    65536,
    10**6,
    2**31 - 1,
    2**31,
    -(2**31),
    2**32,
    2**40,
    2**63 - 1,
    -(2**63),
    2**64,
    10**30,
)
FLOATS = (
    0.0,
    -0.0,
    1e-45,
    1e-30,
    0.5,
    -1.0,
    1e30,
    3.4e38,
    1e308,
    float("inf"),
    float("-inf"),
    float("nan"),
)
TEXTS = (
    "",
    " ",
    ".",
    "..",
    "/",
    "../../x",
    "a/b",
    "/etc/passwd",
    "file",
    "allow_pickle",
    "self",
    "x" * 300,
    "y" * 70_000,
    "\0",
    "a\0b",
    "\x1b[31m",
    "\x1b]0;t\x07",
    "\u202e",
    "é",
    "\ud800",
    "%s%n",
    "{x}",
    "'",
    '"',
    "\\",
    "</script>",
    "\n",
    "a\nb",
    "-",
    "-o",
    "--help",
    "*/",
    '"\n#include "/etc/passwd"\n',
    "NaN",
    "1e999",
    "null",
    "[" * 3000,
    "true",
)
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")


def odd(rng: random.Random, like: object) -> Any:
    """Return a value of the same type that readers do not expect."""
    if isinstance(like, bool):
        return not like
    if isinstance(like, int) and rng.random() < 0.4:
        return like + rng.choice((-2, -1, 1, 2))  # what a reader may believe
    if isinstance(like, int):
        return rng.choice(
            [
                *NUMBERS,
                like + 1,
                like - 1,
                like * 2,
                -like,
                like ^ (1 << rng.randrange(33)),
            ]
        )
    if isinstance(like, float) and rng.random() < 0.3:
        return like * rng.choice((0.01, 0.5, 1.0001, 3.0, -1.0))
    if isinstance(like, float):
        return rng.choice([*FLOATS, -like, like * 2, like * 1e30])
    if isinstance(like, bytes):
        if like and rng.random() < 0.5:
            return flipped(rng, like)
        return rng.choice(TEXTS).encode(errors="surrogatepass")
    return rng.choice(TEXTS)


def flipped(rng: random.Random, data: bytes) -> bytes:
    """Return bytes of which some are changed, removed, doubled, zero or moved, or which
    are cut off.
    """
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        if not out:
            break
        at = rng.randrange(len(out))
        size = rng.choice((1, 2, 4, 4, 8, 64, 1024))
        match rng.randrange(8):
            case 0 | 1:
                out[at] ^= 1 << rng.randrange(8)
            case 2:
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 3:
                out[at : at + 4] = rng.choice(NUMBERS).to_bytes(
                    16, "little", signed=True
                )[:4]
            case 4:
                del out[at : at + size]
            case 5:
                out[at:at] = out[at : at + size]
            case 6:
                out[at : at + size] = bytes(min(size, len(out) - at))
            case _:
                other = rng.randrange(len(out))
                out[at : at + size] = out[other : other + min(size, len(out) - at)]
    return bytes(out[: rng.randrange(len(out) + 1)] if rng.random() < 0.05 else out)


def retyped(rng: random.Random, data: bytes) -> bytes:
    """Return text with other numbers, words, lines or nesting."""
    lines = data.split(b"\n")
    at = rng.randrange(len(lines))
    match rng.randrange(10):
        case 0 | 1:
            return _one_number(rng, data)
        case 2:
            del lines[at]
        case 3:
            lines[at:at] = [lines[at]] * rng.choice((1, 2, 1000))
        case 4:
            lines[at] = lines[at].replace(
                b" ", rng.choice((b"", b"\t", b" " * 50_000)), 1
            )
        case 5:
            lines[at:at] = [b""] * rng.choice((1, 20_000)) + [
                rng.choice((b"", b" ", b">" * 20_000))
            ]
        case 6:
            lines[at] += rng.choice(TEXTS).encode(errors="surrogatepass")
        case 7:
            cut = rng.randrange(len(lines[at]) + 1)
            nest = rng.choice(
                (b"[", b"(", b"{", b"-", b'{"a":', b"a.", b"{a=", b"'''", b"\\")
            ) * rng.choice((1, 5000))
            lines[at] = lines[at][:cut] + nest + lines[at][cut:]
        case 8:
            other = rng.randrange(len(lines))
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            return flipped(rng, data)
    return b"\n".join(lines)


def _one_number(rng: random.Random, data: bytes) -> bytes:
    found = list(_NUMBER.finditer(data))
    if not found:
        return flipped(rng, data)
    m = rng.choice(found)
    many = ("1" * 5000, "1.2.3", "²", "0x10", "1e9999", "1_000", "nan", "-0")
    new = rng.choice([*map(str, NUMBERS), *map(str, FLOATS), *many])
    return data[: m.start()] + new.encode() + data[m.end() :]


@dataclass
class Leaf:
    """A place in a tree.

    Attributes:
        value: the value there
        take: puts another value there
        drop: removes the value
    """

    value: Any
    take: Callable[[Any], None]
    drop: Callable[[], None]


def leaves(tree: object) -> Iterator[Leaf]:
    """Yield every place of a tree of dicts and lists, but the root."""
    if isinstance(tree, MutableMapping):
        for key, value in list(tree.items()):
            yield Leaf(
                value,
                lambda v, k=key: tree.__setitem__(k, v),  # type: ignore[misc]
                lambda k=key: tree.pop(k, None),  # type: ignore[misc]
            )
            yield from leaves(value)
    elif isinstance(tree, MutableSequence):
        for i, value in enumerate(tree):
            yield Leaf(
                value,
                lambda v, i=i: tree.__setitem__(i, v),  # type: ignore[misc]
                lambda i=i: tree.__delitem__(i),  # type: ignore[misc]
            )
            yield from leaves(value)


def regrown(rng: random.Random, tree: Any) -> Any:
    """Return a tree of which some values are odd, of another type, removed, doubled or
    nested.
    """
    for _ in range(rng.choice((1, 1, 2, 3))):
        found = list(leaves(tree))
        if not found:
            return tree
        leaf = rng.choice(found)
        try:
            match rng.randrange(6):
                case 0 | 1:
                    plain = not isinstance(leaf.value, dict | list)
                    leaf.take(
                        odd(rng, leaf.value)
                        if plain
                        else rng.choice(({}, [], None, 5, "x", [[]]))
                    )
                case 2:
                    leaf.take(
                        rng.choice(
                            [
                                None,
                                True,
                                *NUMBERS,
                                *FLOATS,
                                *TEXTS,
                                [],
                                {},
                                [None],
                                {"a": 1},
                            ]
                        )
                    )
                case 3:
                    leaf.drop()
                case 4:
                    leaf.take([leaf.value] * rng.choice((1, 2, 1000)))
                case _:
                    leaf.take(copy.deepcopy(rng.choice(found).value))
        except IndexError:  # what was dropped before stood in the same list
            continue
    return tree
