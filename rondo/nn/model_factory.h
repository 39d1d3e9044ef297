#pragma once

#include "rondo/base/error.h"
#include "rondo/nn/model.h"

namespace rondo {

// What the factory makes next. Throws UsageError where it makes nothing.
inline Model next_model(const ModelFactory& factory) {
  if (!factory) throw UsageError("there is no model factory: give a function that returns a Model");
  Model model = factory();
  if (!model.module)
    throw UsageError(
        "the model factory returned a Model whose module is null; set Model::module, or return "
        "as_model(...)");
  return model;
}

}  // namespace rondo
