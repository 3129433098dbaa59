/* The interface of a stage. The functions that are not pure are the framework's. */
#pragma once
#include <boost/property_tree/ptree.hpp>

#include "core/rpicam_app.hpp"

namespace libcamera {
struct StreamConfiguration;
}
using StreamConfiguration = libcamera::StreamConfiguration;

class PostProcessingStage {
  public:
    PostProcessingStage(RPiCamApp *app);
    virtual ~PostProcessingStage();
    virtual char const *Name() const = 0;
    virtual void Read(boost::property_tree::ptree const &params);
    virtual void AdjustConfig(std::string const &use_case, StreamConfiguration *config);
    virtual void Configure();
    virtual void Start();
    virtual bool Process(CompletedRequestPtr &completed_request) = 0;
    virtual void Stop();
    virtual void Teardown();

  protected:
    RPiCamApp *app_;
};

typedef PostProcessingStage *(*StageCreateFunc)(RPiCamApp *app);
struct RegisterStage {
    RegisterStage(char const *name, StageCreateFunc create_func);
};
