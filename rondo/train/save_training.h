#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rondo/backend/context.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/strategy/prepared_model.h"
#include "rondo/strategy/training.h"

// Checkpoints of a loop of one's own, under any strategy: of forward and backward written out,
//
//   rondo::save("checkpoints", {context, *model, *prepared, optimizer}, step);
//   const std::int64_t step = rondo::load("checkpoints", {context, *model, *prepared, optimizer}).step;
//
// with DistributedDataParallel in place of `*prepared` where the loop has one, and of train_step(), which
// every strategy has:
//
//   rondo::save("checkpoints", context, *training, step);
//   const std::int64_t step = rondo::load("checkpoints", context, *training).step;
namespace rondo {

// What such a loop trains. It refers to the loop's own objects.
struct OwnTraining {
  const Context& context;              // whose ranks train
  const torch::nn::Module& model;      // that Strategy::prepare() was given
  PreparedModel& prepared;             // that it gave
  torch::optim::Optimizer& optimizer;  // over the parameters of prepared.module()
};

// A loop under DistributedDataParallel. Refers to the loop's own objects.
struct DdpTraining {
  const Context& context;              // whose ranks train
  const torch::nn::Module& model;      // the model that `ddp` was made of
  DistributedDataParallel& ddp;        // made of `model`
  torch::optim::Optimizer& optimizer;  // over the model's parameters
};

// What load() found besides weights and optimizer.
struct OwnPosition {
  std::int64_t step = 0;       // that save() was told
  nlohmann::json values = {};  // that save() was told
};

// How a checkpoint is loaded.
struct LoadOptions {
  // Of an optimizer that rondo does not know a checkpoint has libtorch's archive, and reading that may run
  // code of the checkpoint. Without it that is a UsageError.
  bool trust_archives = false;
};

// Writes ROOT/step-NNNNNNNN as one atomic step: weights, the optimizer's state, random streams, what
// communication remembers, `step` and `values`. Deletes all but the newest `keep`. It can be loaded under
// another strategy and number of ranks. Between steps; collective. Throws Error on all ranks when it cannot
// be written.
void save(const std::filesystem::path& root, const OwnTraining& training, std::int64_t step,
          const nlohmann::json& values = nlohmann::json::object(), int keep = 3);
// Saves a loop under DistributedDataParallel. Parameters and buffers that each rank has for itself
// (DdpOptions::ignored) are not in the checkpoint. It can be loaded under any strategy.
void save(const std::filesystem::path& root, const DdpTraining& training, std::int64_t step,
          const nlohmann::json& values = nlohmann::json::object(), int keep = 3);
// The same of a compiled training of Strategy::prepare(recipe); the scale of a dynamic loss scaler too.
void save(const std::filesystem::path& root, const Context& context, Training& training, std::int64_t step,
          const nlohmann::json& values = nlohmann::json::object(), int keep = 3);

// Goes on from a checkpoint of save(): that directory, or the newest one of a directory of such. At the same
// number of ranks and strategy training continues bit for bit. Collective; before a step. Throws DataError on
// all ranks for a damaged checkpoint, or one of another model or optimizer naming what differs.
OwnPosition load(const std::filesystem::path& checkpoint, const OwnTraining& training,
                 const LoadOptions& options = {});
// Loads into a loop under DistributedDataParallel, from a checkpoint of any strategy.
OwnPosition load(const std::filesystem::path& checkpoint, const DdpTraining& training,
                 const LoadOptions& options = {});
// The same into a compiled training of Strategy::prepare(recipe).
OwnPosition load(const std::filesystem::path& checkpoint, const Context& context, Training& training,
                 const LoadOptions& options = {});

}  // namespace rondo
