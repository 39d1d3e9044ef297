#pragma once

#include <c10/core/Device.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>

#include "rondo/nn/loss.h"
#include "rondo/nn/model.h"
#include "rondo/precision/options.h"

namespace rondo {

// Constructs an optimizer of all or some parameters of a prepared model.
using OptimizerFactory = std::function<std::unique_ptr<torch::optim::Optimizer>(torch::nn::Module&)>;

// All that a strategy needs to train a model, in any number of replicas or parts.
struct Recipe {
  // Called once for each replica of a process. All replicas get the values of rank 0's first one.
  ModelFactory model;
  LossFunction loss = cross_entropy;  // the loss to minimise
  OptimizerFactory optimizer = {};    // empty: Training::compile() is called later
  PrecisionOptions precision = {};    // dtypes of the computation
  c10::Device device = c10::kCPU;     // device of this process's first or only replica
  // Called with the model of the process's first replica, on its device and cast as `precision` requires,
  // before the strategy adds its hooks.
  std::function<void(Model&)> on_model = {};
};

}  // namespace rondo
