#pragma once

#include <c10/core/Device.h>

#include <string>

namespace rondo {

// Loads the accelerator of rondo's tests from lib/rondo_sim.so of the build folder, where `--device` names
// it: "sim" or "sim:N", and its engine between devices. Before init(). Throws UsageError where the module is
// not there, as in an installed program.
void load_simulated_device(const std::string& device);

// Whether `--device` names it.
bool is_simulated(const std::string& device);

// The device of a rank: "sim" deals the devices out to the ranks of a host, "sim:N" is that one. Throws
// UsageError where it is not there.
c10::Device simulated_device(const std::string& device, int local_rank);

}  // namespace rondo
