/* What a stage reads of libcamera's colour spaces. */
#pragma once
#include <optional>

namespace libcamera {
struct ColorSpace {
    enum class YcbcrEncoding { None, Rec601, Rec709, Rec2020 };
    enum class Range { Full, Limited };
    YcbcrEncoding ycbcrEncoding;
    Range range;
};
} // namespace libcamera
