"""Verifies Ed25519 signatures (RFC 8032, section 5.1) with the standard library only.

A device verifies with this who made a bundle.  The time depends on the values, which is
safe since they are all public; this never signs.  This is part of the device end, see
wire.py.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple, Optional

KEY_BYTES = 32
SIGNATURE_BYTES = 64

_P = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, _P - 2, _P) % _P
_ROOT = pow(2, (_P - 1) // 4, _P)  # square root of -1


class _Point(NamedTuple):
    """A point (x/z, y/z) of the curve in extended coordinates, with t = xy/z."""

    x: int
    y: int
    z: int
    t: int


def verify(public: bytes, message: bytes, signature: bytes) -> bool:
    """Return whether a signature of a message is valid; False for bytes of no meaning.

    Args:
        public: the public key, 32 bytes
        message: the message
        signature: the signature, 64 bytes
    """
    if len(public) != KEY_BYTES or len(signature) != SIGNATURE_BYTES:
        return False
    key = _decode(public)
    commitment = _decode(signature[:32])
    s = int.from_bytes(signature[32:], "little")
    if key is None or commitment is None or s >= _ORDER:
        return False
    h = (
        int.from_bytes(
            hashlib.sha512(signature[:32] + public + message).digest(), "little"
        )
        % _ORDER
    )
    left = _times(s, _BASE)
    right = _add(commitment, _times(h, key))
    return (left.x * right.z - right.x * left.z) % _P == 0 and (
        left.y * right.z - right.y * left.z
    ) % _P == 0


def _add(a: _Point, b: _Point) -> _Point:
    """Return the sum of two points, which may be equal (section 5.1.4)."""
    m = (a.y - a.x) * (b.y - b.x) % _P
    n = (a.y + a.x) * (b.y + b.x) % _P
    c = 2 * a.t * b.t * _D % _P
    d = 2 * a.z * b.z % _P
    e = n - m
    f = d - c
    g = d + c
    h = n + m
    return _Point(e * f % _P, g * h % _P, f * g % _P, e * h % _P)


def _times(n: int, point: _Point) -> _Point:
    total = _Point(0, 1, 1, 0)
    while n:
        if n & 1:
            total = _add(total, point)
        point = _add(point, point)
        n = n >> 1
    return total


def _decode(data: bytes) -> Optional[_Point]:
    """Return the point of y and the sign of x (section 5.1.3); None if there is none."""
    number = int.from_bytes(data, "little")
    y = number & ((1 << 255) - 1)
    sign = number >> 255
    x = _find_x(y, sign)
    return None if x is None else _Point(x, y, 1, x * y % _P)


def _find_x(y: int, sign: int) -> Optional[int]:
    if y >= _P:
        return None
    square = (y * y - 1) * pow(_D * y * y + 1, _P - 2, _P) % _P
    if square == 0:
        return None if sign else 0
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * _ROOT % _P
    if (x * x - square) % _P:
        return None
    return _P - x if x & 1 != sign else x


_Y = 4 * pow(5, _P - 2, _P) % _P
_X = _find_x(_Y, 0) or 0
_BASE = _Point(_X, _Y, 1, _X * _Y % _P)
