#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rondo/backend/context.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/training.h"

// Checkpoints of a custom loop under any strategy. For a loop that calls forward and backward itself:
//
//   rondo::save("checkpoints", {context, *model, *prepared, optimizer}, step);
//   const std::int64_t step = rondo::load("checkpoints", {context, *model, *prepared, optimizer}).step;
//
// with a DistributedDataParallel instead of `*prepared` if the loop has one. With train_step(), which every
// strategy has:
//
//   rondo::save("checkpoints", context, *training, step);
//   const std::int64_t step = rondo::load("checkpoints", context, *training).step;
namespace rondo {

// The objects that such a loop trains. Holds references.
struct OwnTraining {
  const Context& context;              // job of the training ranks
  const torch::nn::Module& model;      // argument of Strategy::prepare()
  PreparedModel& prepared;             // result of Strategy::prepare()
  torch::optim::Optimizer& optimizer;  // over the parameters of prepared.module()
};

// A loop under DistributedDataParallel. Holds references.
struct DdpTraining {
  const Context& context;              // job of the training ranks
  const torch::nn::Module& model;      // model of `ddp`
  DistributedDataParallel& ddp;        // wrapper of `model`
  torch::optim::Optimizer& optimizer;  // over the model's parameters
};

// Data of a checkpoint besides weights and optimizer.
struct OwnPosition {
  std::int64_t step = 0;       // step passed to save()
  nlohmann::json values = {};  // values passed to save()
};

// Options of load().
struct LoadOptions {
  // Whether to read libtorch's archive of an optimizer that optimizer_fields.h lacks, such as LBFGS. The
  // archive may run code of the checkpoint. If false, load() throws UsageError for such a checkpoint.
  bool trust_archives = false;
};

// Writes ROOT/step-NNNNNNNN atomically: weights, the optimizer's state, random streams, communication state,
// `step` and `values`. Deletes all but the newest `keep` checkpoints. It can be loaded under another strategy
// and number of ranks. Call it between steps; collective. Throws Error on all ranks if it cannot be written.
void save(const std::filesystem::path& root, const OwnTraining& training, std::int64_t step,
          const nlohmann::json& values = nlohmann::json::object(), int keep = 3);
// Saves a loop under DistributedDataParallel. Parameters and buffers that each rank has for itself
// (DdpOptions::ignored) are not in the checkpoint. It can be loaded under any strategy.
void save(const std::filesystem::path& root, const DdpTraining& training, std::int64_t step,
          const nlohmann::json& values = nlohmann::json::object(), int keep = 3);
// Saves a compiled training of Strategy::prepare(recipe), including the scale of a dynamic loss scaler.
void save(const std::filesystem::path& root, const Context& context, Training& training, std::int64_t step,
          const nlohmann::json& values = nlohmann::json::object(), int keep = 3);

// Loads a checkpoint of save(): this directory, or the newest one in it. With the same number of ranks and
// strategy training continues bit-identically. Call it before a step; collective. Throws DataError on all
// ranks for a damaged checkpoint, or for another model or optimizer, naming the difference.
OwnPosition load(const std::filesystem::path& checkpoint, const OwnTraining& training,
                 const LoadOptions& options = {});
// Loads into a loop under DistributedDataParallel, from a checkpoint of any strategy.
OwnPosition load(const std::filesystem::path& checkpoint, const DdpTraining& training,
                 const LoadOptions& options = {});
// Loads into a compiled training of Strategy::prepare(recipe).
OwnPosition load(const std::filesystem::path& checkpoint, const Context& context, Training& training,
                 const LoadOptions& options = {});

}  // namespace rondo
