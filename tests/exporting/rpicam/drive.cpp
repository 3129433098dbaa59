/* drive MODULE FRAME WIDTH HEIGHT STRIDE MAIN_WIDTH MAIN_HEIGHT [full709] [NAME=NUMBER…]: what
 * rpicam-apps does with a stage, on one frame of YUV420, twice; prints the second result: lines of
 * fields with tabs between. */
#include <libcamera/formats.h>

#include "core/rpicam_app.hpp"
#include "post_processing_stages/object_detect.hpp"
#include "post_processing_stages/post_processing_stage.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fstream>
#include <iterator>
#include <stdexcept>

static libcamera::Stream lores, main_stream;
static libcamera::FrameBuffer buffer;
static StreamInfo lores_info, main_info;
static std::vector<uint8_t> frame;
static std::pair<std::string, StageCreateFunc> registered;

RegisterStage::RegisterStage(char const *name, StageCreateFunc create) {
    registered = {name, create};
}
PostProcessingStage::PostProcessingStage(RPiCamApp *app) : app_(app) {}
PostProcessingStage::~PostProcessingStage() = default;
void PostProcessingStage::Read(boost::property_tree::ptree const &) {}
void PostProcessingStage::AdjustConfig(std::string const &, StreamConfiguration *) {}
void PostProcessingStage::Configure() {}
void PostProcessingStage::Start() {}
void PostProcessingStage::Stop() {}
void PostProcessingStage::Teardown() {}
libcamera::Stream *RPiCamApp::LoresStream(StreamInfo *info) const {
    if (info) *info = lores_info;
    return lores_info.width ? &lores : nullptr;
}
libcamera::Stream *RPiCamApp::GetMainStream() const { return &main_stream; }
StreamInfo RPiCamApp::GetStreamInfo(libcamera::Stream const *stream) const {
    return stream == &lores ? lores_info : main_info;
}
BufferReadSync::BufferReadSync(RPiCamApp *, libcamera::FrameBuffer *from) {
    if (from != &buffer) throw std::runtime_error("another buffer");
    planes_.emplace_back(frame);
}
BufferReadSync::~BufferReadSync() = default;
std::vector<std::span<uint8_t>> const &BufferReadSync::Get() const { return planes_; }

static void print(Metadata const &metadata) {
    for (auto const &[tag, value] : metadata.values) {
        if (auto *text = std::any_cast<std::string>(&value))
            std::printf("%s\t%s\n", tag.c_str(), text->c_str());
        if (auto *pairs = std::any_cast<std::vector<std::pair<std::string, float>>>(&value))
            for (auto const &[name, score] : *pairs)
                std::printf("%s\t%s\t%.9g\n", tag.c_str(), name.c_str(), score);
        if (auto *found = std::any_cast<std::vector<Detection>>(&value))
            for (auto const &d : *found)
                std::printf("%s\t%s\t%d\t%.9g\t%d\t%d\t%u\t%u\n", tag.c_str(), d.name.c_str(),
                            d.category, d.confidence, d.box.x, d.box.y, d.box.width, d.box.height);
    }
}

static int drive(int argc, char **argv) {
    if (argc < 8) return 2;
    std::ifstream file(argv[2], std::ios::binary);
    frame.assign(std::istreambuf_iterator<char>(file), {});
    lores_info.width = std::atoi(argv[3]), lores_info.height = std::atoi(argv[4]);
    lores_info.stride = std::atoi(argv[5]), lores_info.pixel_format = libcamera::formats::YUV420;
    main_info.width = std::atoi(argv[6]), main_info.height = std::atoi(argv[7]);
    boost::property_tree::ptree params;
    for (int i = 8; i < argc; i++) {
        const char *number = std::strchr(argv[i], '=');
        if (number)
            params.numbers[std::string(argv[i], static_cast<size_t>(number - argv[i]))] =
                std::atof(number + 1);
        else
            lores_info.colour_space = {libcamera::ColorSpace::YcbcrEncoding::Rec709,
                                       libcamera::ColorSpace::Range::Full};
    }

    void *module = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!module) return std::fprintf(stderr, "%s\n", dlerror()), 1;
    RPiCamApp app;
    PostProcessingStage *stage = registered.second(&app);
    if (registered.first != stage->Name()) return 1;
    stage->Read(params);
    stage->Configure();
    stage->Start();
    for (unsigned int i = 0; i < 2; i++) {
        auto request = std::make_shared<CompletedRequest>();
        request->sequence = i;
        request->buffers[&lores] = &buffer;
        if (stage->Process(request)) return 1;
        stage->Stop();
        if (i) print(request->post_process_metadata);
    }
    stage->Teardown();
    delete stage;
    return 0;
}

int main(int argc, char **argv) {
    try {
        return drive(argc, argv);
    } catch (std::exception const &e) {
        std::fprintf(stderr, "%s\n", e.what());
        return 1;
    }
}
