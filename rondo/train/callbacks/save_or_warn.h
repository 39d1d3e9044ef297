#pragma once

#include <functional>

#include "rondo/train/trainer.h"

namespace rondo {

// Runs `save`, which calls Trainer::save(). A checkpoint that cannot be written, as on a full disk, is a
// warning of rank 0, naming `what`: training goes on, and older checkpoints stand. Throws what not all ranks
// know of, and what callbacks throw (CallbackFailed). Collective.
void save_or_warn(const Trainer& trainer, const char* what, const std::function<void()>& save);

}  // namespace rondo
