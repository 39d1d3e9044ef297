#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace rondo {

// Returns whether a training has written into the folder: its config.json is that of a run, or it has
// run.json or checkpoints.
bool holds_run(const std::filesystem::path& directory);

// Throws UsageError for a folder that has files and holds no run, naming some of them: a run would replace
// those of the same names. Hidden files, and what precedes a run (a lock, measurements, a plan), may be
// there.
void refuse_foreign_folder(const std::filesystem::path& directory);

}  // namespace rondo
