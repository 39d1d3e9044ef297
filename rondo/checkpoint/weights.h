#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"

namespace rondo {

// Reads a model's tensors from any supported source: a checkpoint, a directory of checkpoints or a run
// directory (the newest checkpoint, which must be intact, see format/checkpoint_files.h); a .safetensors
// file; a folder in Hugging Face's format or its index; an archive of torch::save(module, ...),
// torch.jit.save or Python's torch.save of a dict. The tensors are read-only. Throws DataError.
NamedTensors read_weights(const std::filesystem::path& path);

// Copies read_weights() into `model` as initial weights, converting floating-point types. Throws DataError
// that lists all differences if the weights belong to another model.
void load_weights(const std::filesystem::path& path, const NamedTensors& model);

// Writes an archive that torch::load(module, path) reads. Names are split at dots into modules.
void write_archive(const std::filesystem::path& path, const NamedTensors& tensors);

// Weights in a folder in Hugging Face's format: model.safetensors, or parts listed in
// model.safetensors.index.json.

// Returns the file in `folder` for read_safetensors(): the weights or the index of their parts. Empty if
// there is neither.
std::optional<std::filesystem::path> weights_in_folder(const std::filesystem::path& folder);

// Returns the tensors of a safetensors file, or of the parts listed in an index (NAME.index.json) in the same
// folder, as read-only views of the mapped files. Throws DataError, also for a missing part or tensor.
NamedTensors read_safetensors(const std::filesystem::path& path);

struct StoredTensor;

// Checks that `source` fits `target`: equal names, shapes and dtypes; tensors shared in `target` must be
// shared or equal in `source`. Returns the function that copies the elements, for the caller to run after all
// other checks. A shard in `shards` replaces its tensor: its full shape and dtype are compared, and only its
// elements are copied into it. Throws DataError naming the first difference in the order of `target`; `what`
// describes the source.
std::function<void()> prepare_assign(const NamedTensors& target, const std::vector<StoredTensor>& source,
                                     const std::string& what, const std::vector<Shard>& shards = {});
std::function<void()> prepare_assign(const NamedTensors& target, const NamedTensors& source,
                                     const std::string& what, const std::vector<Shard>& shards = {});

}  // namespace rondo
