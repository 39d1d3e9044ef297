#pragma once

#include <string>

namespace rondo {

// Loads the accelerator of rondo's tests from lib/rondo_sim.so of the build folder, where `--device` names
// it: "sim" or "sim:N", and its engine between devices. Before init(). Throws UsageError where the module is
// not there, as in an installed program.
void load_simulated_device(const std::string& device);

}  // namespace rondo
