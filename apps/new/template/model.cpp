// The same model for rondo's programs, as a shared module:
//
//   make train-module     rondo train --model build/lib@PROJECT@_model.so:make_model --data data.csv
#include <rondo/extend/model.h>
#include "net.h"

// request.config has the values that the data determines (input_shape, classes) and --model-config.
extern "C" void make_model(const rondo::ModelRequest& request, rondo::Model& model) {
  const int64_t inputs = request.config.at("input_shape").at(0).get<int64_t>();
  model = rondo::as_model(std::make_shared<NetImpl>(inputs, request.config.at("classes").get<int64_t>()));
}
