#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/checkpoint/optimizer_state.h"
#include "rondo/checkpoint/tensor_source.h"
#include "rondo/format/checkpoint_directory.h"

namespace torch::optim {
class Optimizer;
}

namespace rondo {

struct NamedOptimizer {
  std::string name = "optimizer";
  torch::optim::Optimizer* optimizer = nullptr;  // not owned
  // The names of what it optimises, where these are parts of the model's parameters; empty: those of the
  // model.
  NamedTensors parameters = {};
  // Then also this rank's part of a whole tensor that belongs to a parameter.
  std::function<at::Tensor(const std::string& parameter, const at::Tensor& whole)> part_of = {};
};

// The parameter of which `tensor`, of a snapshot of the optimizer, is; empty when it is of none.
std::string parameter_of(const std::string& optimizer, const std::string& tensor);

// Of whole tensors of a snapshot what optimizer.part_of() takes.
NamedTensors parts_of(const NamedOptimizer& optimizer, const NamedTensors& tensors);

// What ranks have each for itself, in rank order, by name.
using RankStates = std::vector<std::map<std::string, at::Tensor>>;

// Everything that training needs to continue. It refers to the model's and the optimizers' own tensors:
// saving reads them, loading writes them in place.
struct TrainingState {
  NamedTensors model;                          // named_tensors(module), of several modules with prefixes
  TakeTensor take = {};                        // when loading: for tensors of `model` that are not all here
  std::vector<NamedOptimizer> optimizers;      // each over parameters that are in `model`
  std::vector<at::Tensor> random_states = {};  // random_state() of every rank, in rank order; may be empty
  // What communication remembers on every rank (error feedback), in rank order, by name; may be empty.
  RankStates communication_states = {};
  nlohmann::json values =
      nlohmann::json::object();  // step, epoch, sampler position, schedule, configuration, ...
};

// The same for a writer that holds one tensor at a time.
struct CheckpointContents {
  TensorSources model;
  TensorSources optimizer_tensors = {};
  nlohmann::json optimizers = nlohmann::json::object();  // OptimizerSnapshot::description by name
  std::vector<at::Tensor> random_states = {};
  RankStates communication_states = {};
  nlohmann::json values = nlohmann::json::object();
};
CheckpointContents contents_of(const TrainingState& state);

// Writes ROOT/step-NNNNNNNN as one atomic step and deletes all but the newest `keep` checkpoints (at least
// 1); see format/checkpoint_directory.h. Replicated state is the same on all ranks, so one rank calls this.
// Leftovers of writers that died are removed first. Returns the checkpoint's directory. Throws Error when it
// cannot be written; then the older checkpoints are untouched and nothing of the new one is left.
//
// The sources of `contents` are made one after the other: order_in_file() of the model's, then of the
// optimizers'.
std::filesystem::path save_checkpoint(const std::filesystem::path& root, std::int64_t step,
                                      const CheckpointContents& contents, int keep = 3);
std::filesystem::path save_checkpoint(const std::filesystem::path& root, std::int64_t step,
                                      const TrainingState& state, int keep = 3);

// Reads a checkpoint: a directory that save_checkpoint returned, the newest one of a directory of such, or of
// a run directory. Every rank may call it at once. Copies into the tensors of `state.model` and the
// optimizers, and replaces `values`, `random_states` and `communication_states`. Everything is checked before
// anything is changed: throws DataError for a missing or damaged file, and for a checkpoint of another model
// or optimizer, naming the first tensor that differs and how.
void load_checkpoint(const std::filesystem::path& path, TrainingState& state);

// `values` alone, to learn what a checkpoint holds before making a model for it. Throws DataError.
nlohmann::json read_checkpoint_values(const std::filesystem::path& path);

}  // namespace rondo
