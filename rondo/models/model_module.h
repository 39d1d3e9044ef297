#pragma once

#include <torch/version.h>

#include <nlohmann/json.hpp>

#include "rondo/base/version.h"
#include "rondo/nn/model.h"

// Models of one's own in shared modules that programs load by name, as `rondo train --model
// FILE.so:make_model` does.
//
// A module is compiled from a source that includes this header, such as
//
//   extern "C" void make_model(const rondo::ModelRequest& request, rondo::Model& model) {
//     model = rondo::as_model(std::make_shared<NetImpl>(request.config.at("classes").get<int>()));
//   }
//
// by CMake's rondo_model(mine SOURCES...) of find_package(rondo). It links libtorch and nothing of rondo:
// what it uses of rondo (units, sample dropout, built-in models) is the program's that loads it. The factory
// makes the same architecture for the same request, and may throw.
namespace rondo {

// What a factory is asked for.
struct ModelRequest {
  // What the data decides (input_shape and classes, or context and vocabulary), then --model-config. A
  // model's config is this unless the factory gives it another one.
  nlohmann::json config = nlohmann::json::object();
};

// What the named function of a module is.
using ModuleFactory = void(const ModelRequest& request, Model& model);

// Stands in every module that includes this header. Programs read it from the file before they load it: code
// that was compiled for another libtorch may do anything when it is loaded.
[[gnu::used]] inline constexpr char kModelModuleStamp[] =
    "rondo model module 1|rondo " RONDO_VERSION "|libtorch " TORCH_VERSION "|";

}  // namespace rondo
