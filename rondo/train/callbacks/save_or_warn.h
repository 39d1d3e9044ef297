#pragma once

#include <filesystem>
#include <functional>

#include "rondo/train/trainer.h"

namespace rondo {

// Runs `save`, which calls Trainer::save(). If the checkpoint cannot be written, for example on a full disk,
// rank 0 logs a warning that names `what`; training continues and older checkpoints stay. Rethrows errors
// that did not reach all ranks, and those of callbacks (CallbackFailed). Collective.
void save_or_warn(const Trainer& trainer, const char* what, const std::function<void()>& save);

// Throws AgreedError if rank 0, or with `on_all_ranks` any rank, cannot create a file in `directory`;
// otherwise training would continue until its first checkpoint and fail there. Creates and removes a file.
// Creates a missing folder and, unless all ranks check, removes it again. Collective.
void require_writable(const Context& context, const std::filesystem::path& directory,
                      bool on_all_ranks = false);

}  // namespace rondo
