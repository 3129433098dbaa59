/* What a stage reads of libcamera's pixel formats: a code, and the name of one. */
#pragma once
#include <cstdint>

namespace libcamera {
struct PixelFormat {
    uint32_t fourcc = 0;
    bool operator==(PixelFormat const &other) const { return fourcc == other.fourcc; }
};
namespace formats {
inline constexpr PixelFormat YUV420{0x32315559};
}
} // namespace libcamera
