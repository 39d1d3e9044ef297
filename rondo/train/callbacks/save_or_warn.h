#pragma once

#include <filesystem>
#include <functional>

#include "rondo/train/trainer.h"

namespace rondo {

// Runs `save`, which calls Trainer::save(). A checkpoint that cannot be written, as on a full disk, is a
// warning of rank 0, naming `what`: training goes on, and older checkpoints stand. Throws what not all ranks
// know of, and what callbacks throw (CallbackFailed). Collective.
void save_or_warn(const Trainer& trainer, const char* what, const std::function<void()>& save);

// Throws AgreedError where rank 0, or with `on_all_ranks` any of them, can make no file in `directory`, for a
// training that would find out at its first checkpoint. Makes one and removes it; a missing folder is made
// and, unless all ranks look, removed again. Collective.
void require_writable(const Context& context, const std::filesystem::path& directory,
                      bool on_all_ranks = false);

}  // namespace rondo
