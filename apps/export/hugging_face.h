#pragma once

#include <filesystem>

#include "apps/train/trained_run.h"

namespace rondo {

// Writes a folder that Hugging Face's transformers open with from_pretrained: config.json, model.safetensors,
// and the tokenizer's files (of a gpt that reads bytes one whose tokens are the bytes). Throws UsageError for
// a model that is neither gpt nor bert.
void write_hugging_face(const std::filesystem::path& folder, const Model& model, const TrainedRun& run);

}  // namespace rondo
