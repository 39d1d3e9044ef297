#pragma once

#include <torch/version.h>

#include <nlohmann/json.hpp>

#include "rondo/base/version.h"
#include "rondo/nn/model.h"

// Custom models in shared modules that programs load by name, as `rondo train --model FILE.so:make_model`
// does.
//
// A module is compiled from a source that includes this header, such as
//
//   extern "C" void make_model(const rondo::ModelRequest& request, rondo::Model& model) {
//     model = rondo::as_model(std::make_shared<NetImpl>(request.config.at("classes").get<int>()));
//   }
//
// with CMake's rondo_model(mine SOURCES...) of find_package(rondo). It links libtorch but not rondo: symbols
// of rondo (units, sample dropout, built-in models) resolve to the loading program's. The factory must make
// the same architecture for the same request, and may throw.
namespace rondo {

// The request to a factory.
struct ModelRequest {
  // Entries that depend on the data (input_shape and classes, or context and vocabulary), then
  // --model-config. The model's config is this unless the factory sets another one.
  nlohmann::json config = nlohmann::json::object();
};

// The type of a module's factory function.
using ModuleFactory = void(const ModelRequest& request, Model& model);

// Stamp in every module that includes this header. Programs read it from the file before loading: code that
// was compiled for another libtorch may do anything when it is loaded.
[[gnu::used]] inline constexpr char kModelModuleStamp[] =
    "rondo model module 1|rondo " RONDO_VERSION "|libtorch " TORCH_VERSION "|";

}  // namespace rondo
