#pragma once

#include <c10/core/Device.h>

#include <string>

namespace rondo {

// Whether `--device` names the simulated accelerator of rondo's tests: "sim" or "sim:N".
bool is_simulated(const std::string& device);

// The device of a rank: "sim" deals the devices out to the ranks of a host, "sim:N" is that one. Loads the
// accelerator, from lib/rondo_sim.so of the build folder. Throws UsageError where it is not there, as in an
// installed program, or has no such device.
c10::Device simulated_device(const std::string& device, int local_rank);

}  // namespace rondo
