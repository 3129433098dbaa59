"""The classes of the structs of csrc, whose headers say what their fields mean.

Sizes of images are n, ih, iw, ic (input) and oh, ow, oc (output) in elements; windows
have kh, kw rows and columns, strides sh, sw, dilations dh, dw and padding pt, pl at the
top and left.
"""

from __future__ import annotations

from edgec.ir.c_headers import structs

globals().update(structs())
