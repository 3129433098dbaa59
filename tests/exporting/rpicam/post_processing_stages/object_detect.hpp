/* A detection, as stages hand it to each other. */
#pragma once
#include <string>

namespace libcamera {
struct Rectangle {
    int x, y;
    unsigned int width, height;
};
} // namespace libcamera

struct Detection {
    Detection(int c, const std::string &n, float conf, int x, int y, int w, int h)
        : category(c), name(n), confidence(conf),
          box{x, y, static_cast<unsigned int>(w), static_cast<unsigned int>(h)} {}
    int category;
    std::string name;
    float confidence;
    libcamera::Rectangle box;
};
