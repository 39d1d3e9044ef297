#pragma once

#include <c10/core/Device.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>

#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"
#include "rondo/precision/options.h"

namespace rondo {

// Makes an optimizer of a model that a strategy has prepared: of all its parameters, or some.
using OptimizerFactory = std::function<std::unique_ptr<torch::optim::Optimizer>(torch::nn::Module&)>;

// Everything that a strategy needs to train a model, in as many replicas or parts as it likes.
struct Recipe {
  // Called once for each replica of a process. Replicas get the values of rank 0's first one.
  ModelFactory model;
  LossFunction loss = cross_entropy;  // what is minimised
  OptimizerFactory optimizer = {};    // empty: Training::compile() comes later
  PrecisionOptions precision = {};    // what is computed in which dtype
  c10::Device device = c10::kCPU;     // of this process's replica, or of the first
  // Told of the model on its device, cast as `precision` says, before the strategy watches it: of a process's
  // first replica.
  std::function<void(Model&)> on_model = {};
};

}  // namespace rondo
