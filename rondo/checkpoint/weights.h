#pragma once

#include <filesystem>

#include "rondo/checkpoint/named_tensors.h"

namespace rondo {

// Reads a model's tensors from whatever they were saved in: a checkpoint, a directory of checkpoints or a run
// directory (the newest checkpoint; it must be intact, see format/checkpoint_choice.h), a .safetensors file,
// a folder of Hugging Face's or the index of its parts (indexed_weights.h), or an archive of
// torch::save(module,
// ...), torch.jit.save or Python's torch.save of a dict. The tensors are read-only. Throws DataError.
NamedTensors read_weights(const std::filesystem::path& path);

// Initial weights: read_weights() copied into `model`; floating-point types are converted. Throws DataError,
// which names all differences, for the weights of another model.
void load_weights(const std::filesystem::path& path, const NamedTensors& model);

// An archive that torch::load(module, path) reads. Names are split at dots into modules.
void write_archive(const std::filesystem::path& path, const NamedTensors& tensors);

}  // namespace rondo
