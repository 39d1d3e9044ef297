#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"
#include "rondo/checkpoint/optimizer_state.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/format/checkpoint_directory.h"

namespace torch::optim {
class Optimizer;
}

namespace rondo {

struct NamedOptimizer {
  std::string name = kOptimizerName;
  torch::optim::Optimizer* optimizer = nullptr;  // not owned
};

// What ranks have each for itself, in rank order, by name.
using RankStates = std::vector<std::map<std::string, at::Tensor>>;

// Everything that training needs to continue. It refers to the model's and the optimizers' own tensors:
// saving reads them, loading writes them in place.
struct TrainingState {
  NamedTensors model;  // named_tensors(module), of several modules with prefixes
  // When loading: what is here of tensors of `model` that are not all here, and what the optimizers then
  // change instead of those; empty: everything is here.
  std::vector<Shard> shards = {};
  std::vector<NamedOptimizer> optimizers;      // each over parameters that are in `model`
  std::vector<at::Tensor> random_states = {};  // random_state() of every rank, in rank order; may be empty
  // What communication remembers on every rank (error feedback), in rank order, by name; may be empty.
  RankStates communication_states = {};
  // When loading: parameters of the optimizers that this rank has for itself, and no checkpoint has. What the
  // optimizers remember of them stays.
  std::vector<at::Tensor> own_parameters = {};
  // When loading: an optimizer that rondo does not know may have its state read by libtorch, which may run
  // code of the checkpoint. Without it that is a UsageError.
  bool trust_archives = false;
  nlohmann::json values =
      nlohmann::json::object();  // step, epoch, sampler position, schedule, configuration, ...
  // When loading: looks at the values before anything is changed; `file` says where they stand. Throws
  // DataError for values that cannot be.
  std::function<void(const nlohmann::json& values, const std::string& file)> check = {};
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
// optimizers'. With `incremental` large tensors have files of their own, and those that the newest checkpoint
// of `root` has with the same elements are links to its files (IncrementalWriter).
std::filesystem::path save_checkpoint(const std::filesystem::path& root, std::int64_t step,
                                      const CheckpointContents& contents, int keep = 3,
                                      bool incremental = false);
std::filesystem::path save_checkpoint(const std::filesystem::path& root, std::int64_t step,
                                      const TrainingState& state, int keep = 3, bool incremental = false);

// What one of the ranks writes of a checkpoint in parts: the files model-00002-of-00004.safetensors and
// optimizer-00002-of-00004.safetensors.
struct CheckpointPart {
  std::vector<Shard> model = {};
  std::vector<Shard> optimizer = {};               // "optimizer/PARAMETER/exp_avg"
  std::map<std::string, std::string> shared = {};  // further names of tensors, of one part
  int number = 0;                                  // from 0
  int count = 1;                                   // of all parts
};

// Writes the files of a part into CheckpointWriter::directory() of the rank that commits, to the disk, and
// returns their records for its add(). Any thread. Throws Error.
std::vector<FileRecord> write_part(const std::filesystem::path& directory, const CheckpointPart& part);

// Writes what is in no part: random states, communication states, values and descriptions of optimizers.
void write_rest(CheckpointWriter& writer, const CheckpointContents& contents);

// Reads a checkpoint: a directory that save_checkpoint returned, the newest one of a directory of such, or of
// a run directory. Every rank may call it at once. Copies into the tensors of `state.model` and the
// optimizers, and replaces `values`, `random_states` and `communication_states`. Everything is checked before
// anything is changed: throws DataError for a missing or damaged file, and for a checkpoint of another model
// or optimizer, naming the first tensor that differs and how.
void load_checkpoint(const std::filesystem::path& path, TrainingState& state);

// `values` alone, to learn what a checkpoint holds before making a model for it. Throws DataError, as
// load_checkpoint does, for a damaged checkpoint.
nlohmann::json read_checkpoint_values(const std::filesystem::path& path);

// Writes tensors into a checkpoint so that the next one need not write again what has not changed (frozen
// weights, experts without samples): a large tensor has a file of its own, and where the newest checkpoint of
// the root has the same tensor with the same elements, that file becomes a hard link to the older one's.
// Files are never changed after they were written, so each checkpoint stays complete when the others are
// deleted. The directory has the form of one in parts, and every reader reads it.
class IncrementalWriter {
 public:
  // `writer` outlives this object. A newest checkpoint that is damaged, or was not saved so, gives nothing to
  // link.
  IncrementalWriter(CheckpointWriter& writer, const std::filesystem::path& root);

  // The files of one kind ("model", "optimizer"). The sources are made one after the other: order_in_file().
  // Throws Error.
  void write(const std::string& kind, const TensorSources& sources);

 private:
  bool link(const std::string& kind, const TensorSpec& spec, const std::string& file_name,
            const std::string& checksum);

  CheckpointWriter& writer_;
  // Files of the newest checkpoint with one tensor, by kind and tensor, with what its manifest says of them.
  std::map<std::pair<std::string, std::string>, std::pair<std::filesystem::path, FileRecord>> older_;
};

// The state of libtorch's default generators that a process training on `device` draws from (the CPU's, and
// the device's own), as one uint8 tensor on the CPU.
at::Tensor random_state(c10::Device device = c10::kCPU);

// Puts back what random_state() returned. Between the CPU and CUDA only the CPU's generator is put back, and
// the device's stays as it is. Throws DataError when the state does not fit.
void set_random_state(const at::Tensor& state, c10::Device device = c10::kCPU);

}  // namespace rondo
