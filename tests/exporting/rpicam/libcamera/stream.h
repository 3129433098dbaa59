/* A stage has the addresses of libcamera's streams and buffers, and nothing in them. */
#pragma once

namespace libcamera {
class Stream {};
class FrameBuffer {};
} // namespace libcamera
