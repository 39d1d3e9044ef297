#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "apps/train/flags.h"

namespace rondo {

// Where a run keeps its files.
struct RunDirectory {
  std::filesystem::path path;
  std::optional<std::filesystem::path> resume_from;  // a checkpoint to continue from

  std::filesystem::path checkpoints() const { return path / "checkpoints"; }
  std::filesystem::path metrics() const { return path / "metrics.jsonl"; }
};

// Finds the directory that `flags` mean, and what to resume from; makes nothing. Throws UsageError for a
// directory that holds a run already without --resume, and for --resume of a directory that is none.
RunDirectory find_run_directory(const TrainFlags& flags);

// Makes the directory and writes config.json.
void prepare_run_directory(const RunDirectory& run, const nlohmann::ordered_json& configuration);

}  // namespace rondo
