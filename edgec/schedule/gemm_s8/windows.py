"""Geometry: the windows of convolutions, transposed ones and matrix products, as
csrc/ek_gemm_s8.h sees them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgec.schedule.conv import Conv


@dataclass(frozen=True)
class GemmS8Shape(Conv):
    """A convolution, as ek_conv2d_t has it; with `phases`, a transposed one
    (ek_transpose_conv2d_t), whose stride they are: rows and columns of the result a
    phase apart are convolutions of stride 1 by every phase-th tap. phase: whether it is
    one of those.
    """

    phases: tuple[int, int] | None = None
    phase: bool = False

    @property
    def depth(self) -> int:
        """Input channels of one window."""
        return self.group_ic or self.ic

    @property
    def groups(self) -> int:
        """Groups of channels."""
        return self.ic // self.depth

    @property
    def flat(self) -> bool:
        """Whether windows are pixels, one behind the other."""
        one = (self.kh, self.kw, self.sh, self.sw, self.pt, self.pl) == (
            1,
            1,
            1,
            1,
            0,
            0,
        )
        return one and (self.oh, self.ow) == (self.ih, self.iw) and self.phases is None

    @property
    def taps(self) -> tuple[int, int]:
        """Pointers of a window and elements behind each: taps of a row of the kernel
        may lie side by side.
        """
        if self.groups == 1 and (self.dw == 1 or self.kw == 1):
            return self.kh, self.kw * self.depth
        return self.kh * self.kw, self.depth

    @property
    def bottom(self) -> int:
        """Rows that windows reach below the image."""
        return (self.oh - 1) * self.sh + (self.kh - 1) * self.dh + 1 - self.pt - self.ih

    @property
    def right(self) -> int:
        """Columns that windows reach behind the image."""
        return (self.ow - 1) * self.sw + (self.kw - 1) * self.dw + 1 - self.pl - self.iw

    def parts(self) -> list[GemmS8Shape]:
        """The convolutions of all phases, those of a row together; itself where there
        are none.
        """
        if self.phases is None:
            return [self]
        (sh, sw), out = self.phases, []
        kh = -(-self.kh // sh)
        kw = -(-self.kw // sw)
        for a in range(sh):
            for b in range(sw):
                oh = -(-(self.oh - a) // sh)
                ow = -(-(self.ow - b) // sw)
                pt = kh - 1 - (a + self.pt) // sh
                pl = kw - 1 - (b + self.pl) // sw
                out.append(
                    replace(
                        self,
                        kh=kh,
                        kw=kw,
                        oh=oh,
                        ow=ow,
                        pt=pt,
                        pl=pl,
                        phases=None,
                        phase=True,
                    )
                )
        return out
