#pragma once

#include <string>

namespace rondo {

// Replaces the engine between cards by the one that the shared module at `path` registers under the same name
// (rondo/backend/engine/module.h), for accelerators that libtorch's own engine does not know. Tensors on the
// CPU still go over the engine that auto stands for, and each rank must use a device of its own. Before
// init(). Any thread. Throws UsageError as load_backend does.
void replace_card_engine(const std::string& path);

}  // namespace rondo
