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

// State that differs between ranks, in rank order, by name.
using RankStates = std::vector<std::map<std::string, at::Tensor>>;

// The complete state needed to resume training. It refers to the tensors of the model and the optimizers:
// saving reads them, loading writes to them in place.
struct TrainingState {
  NamedTensors model;  // named_tensors(module); for several modules with prefixes
  // For loading: the local shards of tensors of `model` that this rank holds only partly; the optimizers
  // update these instead. Empty: all tensors are complete.
  std::vector<Shard> shards = {};
  std::vector<NamedOptimizer> optimizers;      // optimizers over parameters in `model`
  std::vector<at::Tensor> random_states = {};  // random_state() of every rank, in rank order; may be empty
  // Communication state of every rank (error feedback), in rank order, by name; may be empty.
  RankStates communication_states = {};
  // For loading: parameters of the optimizers that only this rank has and no checkpoint contains. The
  // optimizers keep their state.
  std::vector<at::Tensor> own_parameters = {};
  // For loading: whether libtorch may read the state of an optimizer that rondo does not know, which may run
  // code in the checkpoint. If false, such a state is a UsageError.
  bool trust_archives = false;
  nlohmann::json values =
      nlohmann::json::object();  // step, epoch, sampler position, schedule, configuration, ...
  // For loading: checks the values before anything is changed; `file` names their file. Throws DataError for
  // invalid values.
  std::function<void(const nlohmann::json& values, const std::string& file)> check = {};
};

// Same content as TrainingState, for a writer that holds one tensor at a time.
struct CheckpointContents {
  TensorSources model;
  TensorSources optimizer_tensors = {};
  nlohmann::json optimizers = nlohmann::json::object();  // OptimizerSnapshot::description by name
  std::vector<at::Tensor> random_states = {};
  RankStates communication_states = {};
  nlohmann::json values = nlohmann::json::object();
};
CheckpointContents contents_of(const TrainingState& state);

// Writes ROOT/step-NNNNNNNN atomically and deletes all but the newest `keep` checkpoints (at least 1); see
// format/checkpoint_directory.h. Replicated state is equal on all ranks, so one rank calls this. First
// removes leftovers of writers that died. Returns the checkpoint's directory. Throws Error if it cannot be
// written; the older checkpoints are then unchanged and nothing of the new one remains.
//
// Evaluates the sources of `contents` one after another: the model's in order_in_file(), then the
// optimizers'. With `incremental`, large tensors have separate files. Tensors that the newest checkpoint of
// `root` contains with equal elements become links to its files (IncrementalWriter).
std::filesystem::path save_checkpoint(const std::filesystem::path& root, std::int64_t step,
                                      const CheckpointContents& contents, int keep = 3,
                                      bool incremental = false);
std::filesystem::path save_checkpoint(const std::filesystem::path& root, std::int64_t step,
                                      const TrainingState& state, int keep = 3, bool incremental = false);

// The part of a sharded checkpoint that one rank writes: for example the files
// model-00002-of-00004.safetensors and optimizer-00002-of-00004.safetensors.
struct CheckpointPart {
  std::vector<Shard> model = {};
  std::vector<Shard> optimizer = {};               // named "optimizer/PARAMETER/exp_avg"
  std::map<std::string, std::string> shared = {};  // further names of tensors; set in one part only
  int number = 0;                                  // number of the part, from 0
  int count = 1;                                   // number of parts
};

// Writes and syncs the files of a part into CheckpointWriter::directory() of the committing rank. Returns
// their records for CheckpointWriter::add(). Thread-safe. Throws Error.
std::vector<FileRecord> write_part(const std::filesystem::path& directory, const CheckpointPart& part);

// Writes the content outside the parts: random states, communication states, values and descriptions of
// optimizers.
void write_rest(CheckpointWriter& writer, const CheckpointContents& contents);

// Reads a checkpoint: a directory that save_checkpoint() returned, or the newest one in a directory of
// checkpoints or a run directory. All ranks may call it concurrently. Copies into the tensors of
// `state.model` and of the optimizers, and replaces `values`, `random_states` and `communication_states`.
// Checks everything before it changes anything. Throws DataError for a missing or damaged file, and for a
// checkpoint of another model or optimizer, naming the first difference.
void load_checkpoint(const std::filesystem::path& path, TrainingState& state);

// Reads only the values of a checkpoint, to learn its configuration before creating a model. Throws DataError
// for a damaged checkpoint, like load_checkpoint().
nlohmann::json read_checkpoint_values(const std::filesystem::path& path);

// A writer of incremental checkpoints, which do not write unchanged tensors again (frozen weights, experts
// without samples). Each large tensor has a separate file. If the newest checkpoint of the root contains the
// same tensor with equal elements, the file is a hard link to the older one. Files are never modified after
// they are written, so each checkpoint remains complete when others are deleted. The directory has the form
// of a checkpoint in parts, which every reader supports.
class IncrementalWriter {
 public:
  // `writer` must outlive this object. Links nothing if the newest checkpoint is damaged or was not written
  // incrementally.
  IncrementalWriter(CheckpointWriter& writer, const std::filesystem::path& root);

  // Writes the files of one kind ("model", "optimizer"). Evaluates the sources one after another, in
  // order_in_file(). Throws Error.
  void write(const std::string& kind, const TensorSources& sources);

 private:
  bool link(const std::string& kind, const TensorSpec& spec, const std::string& file_name,
            const std::string& checksum);

  CheckpointWriter& writer_;
  // Single-tensor files of the newest checkpoint with their manifest records, by kind and tensor.
  std::map<std::pair<std::string, std::string>, std::pair<std::filesystem::path, FileRecord>> older_;
};

// Returns the state of libtorch's default generators that training on `device` uses (the CPU's and the
// device's), as one uint8 tensor on the CPU.
at::Tensor random_state(c10::Device device = c10::kCPU);

// Restores a random_state(). Between CPU and CUDA, restores only the CPU's generator and leaves the device's
// unchanged. Throws DataError if the state does not fit.
void set_random_state(const at::Tensor& state, c10::Device device = c10::kCPU);

}  // namespace rondo
