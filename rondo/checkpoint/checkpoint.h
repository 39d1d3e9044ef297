#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/format/checkpoint_directory.h"

namespace torch::optim {
class Optimizer;
}

namespace rondo {

struct NamedOptimizer {
  std::string name = "optimizer";
  torch::optim::Optimizer* optimizer = nullptr;  // not owned
};

// Everything that training needs to continue. It refers to the model's and the optimizers' own tensors:
// saving reads them, loading writes them in place.
struct TrainingState {
  NamedTensors model;                      // named_tensors(module), of several modules with prefixes
  std::vector<NamedOptimizer> optimizers;  // each over parameters that are in `model`
  std::vector<at::Tensor> random_states;   // random_state() of every rank, in rank order; may be empty
  nlohmann::json values =
      nlohmann::json::object();  // step, epoch, sampler position, schedule, configuration, ...
};

// Writes ROOT/step-NNNNNNNN as one atomic step and deletes all but the newest `keep` checkpoints (at least
// 1); see format/checkpoint_directory.h. Replicated state is the same on all ranks, so one rank calls this.
// Leftovers of writers that died are removed first. Returns the checkpoint's directory. Throws Error when it
// cannot be written; then the older checkpoints are untouched and nothing of the new one is left.
std::filesystem::path save_checkpoint(const std::filesystem::path& root, std::int64_t step,
                                      const TrainingState& state, int keep = 3);

// Reads a checkpoint: a directory that save_checkpoint returned, the newest one of a directory of such, or of
// a run directory. Every rank may call it at once. Copies into the tensors of `state.model` and the
// optimizers, and replaces `values` and `random_states`. Everything is checked before anything is changed:
// throws DataError for a missing or damaged file, and for a checkpoint of another model or optimizer, naming
// the first tensor that differs and how.
void load_checkpoint(const std::filesystem::path& path, TrainingState& state);

// `values` alone, to learn what a checkpoint holds before making a model for it. Throws DataError.
nlohmann::json read_checkpoint_values(const std::filesystem::path& path);

}  // namespace rondo
