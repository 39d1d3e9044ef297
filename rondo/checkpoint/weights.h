#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rondo/checkpoint/named_tensors.h"

namespace rondo {

// Reads a model's tensors from whatever they were saved in: a checkpoint, a directory of checkpoints or a run
// directory (the newest checkpoint; it must be intact, see format/checkpoint_files.h), a .safetensors file,
// a folder of Hugging Face's or the index of its parts, or an archive of
// torch::save(module,
// ...), torch.jit.save or Python's torch.save of a dict. The tensors are read-only. Throws DataError.
NamedTensors read_weights(const std::filesystem::path& path);

// Initial weights: read_weights() copied into `model`; floating-point types are converted. Throws DataError,
// which names all differences, for the weights of another model.
void load_weights(const std::filesystem::path& path, const NamedTensors& model);

// An archive that torch::load(module, path) reads. Names are split at dots into modules.
void write_archive(const std::filesystem::path& path, const NamedTensors& tensors);

// Weights as Hugging Face keeps them in a folder: model.safetensors, or parts of it that
// model.safetensors.index.json lists.

// The file in `folder` to give to read_safetensors(): the weights, or the index of their parts. Nothing where
// there is neither.
std::optional<std::filesystem::path> weights_in_folder(const std::filesystem::path& folder);

// The tensors of a safetensors file, or of the parts that an index (NAME.index.json) lists beside itself; as
// read-only views of the mapped files. Throws DataError, also for a part or a tensor of a part that is not
// there.
NamedTensors read_safetensors(const std::filesystem::path& path);

struct StoredTensor;

// Checks that `source` fits `target`: the same names, shapes and dtypes, and what `target` shares is shared
// or equal in `source`. Returns the function that copies the elements, for the caller to run when everything
// else has been checked too. Of a tensor of which `shards` has one, that shard stands for it: its full shape
// and its dtype are compared, and the elements that it has are copied into it. Throws DataError naming the
// first tensor of `target` that differs and how; `what` describes the source in it.
std::function<void()> prepare_assign(const NamedTensors& target, const std::vector<StoredTensor>& source,
                                     const std::string& what, const std::vector<Shard>& shards = {});
std::function<void()> prepare_assign(const NamedTensors& target, const NamedTensors& source,
                                     const std::string& what, const std::vector<Shard>& shards = {});

}  // namespace rondo
