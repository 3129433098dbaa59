"""Shapes of int8 convolutions and matrix products as csrc/ek_gemm_s8.h computes them.

The GEMM has M = pixels of the result, N = output channels and K = the elements of one
window. Windows are not copied to a matrix (im2col): the kernel reads each through an
indirection of `taps` pointers with `run` adjacent elements behind every one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edgec.schedule.conv import Conv


@dataclass(frozen=True)
class GemmS8Shape(Conv):
    """The shape of a convolution, a transposed one or a matrix product.

    A transposed convolution of stride (sh, sw) is sh * sw plain convolutions of stride
    1, one for each phase: the pixels of the result whose row is congruent modulo sh
    and whose column is congruent modulo sw read the same taps of the kernel.

    Attributes:
        phases: the stride of a transposed convolution; None for a plain one
        phase: whether the shape is one phase of a transposed convolution
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
        """Whether each window is one pixel, so that all pixels form one long row."""
        if self.phases is not None:
            return False
        is_1x1 = (self.kh, self.kw) == (1, 1)
        has_stride_1 = (self.sh, self.sw) == (1, 1)
        has_no_padding = (self.pt, self.pl) == (0, 0)

        # Padding at the bottom or right would make the result larger.
        same_size = (self.oh, self.ow) == (self.ih, self.iw)
        return is_1x1 and has_stride_1 and has_no_padding and same_size

    @property
    def taps(self) -> tuple[int, int]:
        """Pointers of a window, and the number of adjacent elements behind each."""
        # Without groups or dilation a row of the kernel covers adjacent pixels, so that
        # one pointer serves all of its taps.
        rows_are_adjacent = self.groups == 1 and (self.dw == 1 or self.kw == 1)
        if rows_are_adjacent:
            run = self.kw * self.depth
            return self.kh, run

        taps = self.kh * self.kw
        return taps, self.depth

    @property
    def bottom(self) -> int:
        """Rows that windows reach below the image."""
        last_row = (self.oh - 1) * self.sh + (self.kh - 1) * self.dh
        return last_row + 1 - self.pt - self.ih

    @property
    def right(self) -> int:
        """Columns that windows reach to the right of the image."""
        last_column = (self.ow - 1) * self.sw + (self.kw - 1) * self.dw
        return last_column + 1 - self.pl - self.iw

    @property
    def needs_padded_columns(self) -> bool:
        """Whether windows reach to the left or right of the image."""
        return self.pl > 0 or self.right > 0

    @property
    def needs_padded_rows(self) -> bool:
        """Whether windows reach above or below the image."""
        return self.pt > 0 or self.bottom > 0

    def parts(self) -> list[GemmS8Shape]:
        """Return the convolutions of all phases, row by row; a plain one is its own."""
        if self.phases is None:
            return [self]

        rows, columns = self.phases
        phases: list[GemmS8Shape] = []
        for row in range(rows):
            for column in range(columns):
                phases.append(self._phase(row, column))
        return phases

    def _phase(self, row: int, column: int) -> GemmS8Shape:
        """Return the convolution for result rows `row` + i sh, columns `column` + j sw.

        With y = row + i sh, the transposed convolution adds x[iy] w[ky] to result y
        where ky = y + pt - iy sh. Hence ky ≡ row + pt modulo sh, and tap number
        (ky - (row + pt) mod sh) / sh reads image row i + (row + pt) // sh minus that
        number: a convolution with the taps in reverse order.
        """
        assert self.phases is not None
        sh, sw = self.phases
        # Phases with fewer taps are filled up, so that all have one size.
        kh = -(-self.kh // sh)
        kw = -(-self.kw // sw)

        return replace(
            self,
            kh=kh,
            kw=kw,
            oh=-(-(self.oh - row) // sh),
            ow=-(-(self.ow - column) // sw),
            pt=kh - 1 - (row + self.pt) // sh,
            pl=kw - 1 - (column + self.pl) // sw,
            phases=None,
            phase=True,
        )
