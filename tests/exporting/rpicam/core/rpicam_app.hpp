/* What a stage calls of RPiCamApp, and what it gets with a frame. */
#pragma once
#include <any>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <libcamera/color_space.h>
#include <libcamera/formats.h>
#include <libcamera/stream.h>

struct StreamInfo {
    unsigned int width = 0, height = 0, stride = 0;
    libcamera::PixelFormat pixel_format;
    std::optional<libcamera::ColorSpace> colour_space;
};

/* Values of any type by name. */
struct Metadata {
    std::map<std::string, std::any> values;
    template <typename T> void Set(std::string const &tag, T &&value) {
        values.insert_or_assign(tag, std::forward<T>(value));
    }
};

struct CompletedRequest {
    unsigned int sequence = 0;
    std::map<libcamera::Stream const *, libcamera::FrameBuffer *> buffers;
    Metadata post_process_metadata;
};
using CompletedRequestPtr = std::shared_ptr<CompletedRequest>;

class RPiCamApp {
  public:
    virtual ~RPiCamApp() = default;
    libcamera::Stream *LoresStream(StreamInfo *info = nullptr) const;
    libcamera::Stream *GetMainStream() const;
    StreamInfo GetStreamInfo(libcamera::Stream const *stream) const;
};

/* The planes of a buffer, while it is mapped. */
class BufferReadSync {
  public:
    BufferReadSync(RPiCamApp *app, libcamera::FrameBuffer *buffer);
    ~BufferReadSync();
    std::vector<std::span<uint8_t>> const &Get() const;

  private:
    std::vector<std::span<uint8_t>> planes_;
};
