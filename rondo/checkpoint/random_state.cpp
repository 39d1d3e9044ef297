#include "rondo/checkpoint/random_state.h"

#include <torch/types.h>

#include <mutex>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr std::int64_t kCudaStateBytes = 16;  // seed and offset

std::vector<at::Generator> generators(c10::Device device) {
  std::vector<at::Generator> result{at::globalContext().defaultGenerator(c10::kCPU)};
  if (!device.is_cpu()) result.push_back(at::globalContext().defaultGenerator(device));
  return result;
}

}  // namespace

at::Tensor random_state(c10::Device device) {
  std::vector<at::Tensor> states;
  for (at::Generator& generator : generators(device)) {
    const std::scoped_lock lock(generator.mutex());
    states.push_back(generator.get_state());
  }
  return at::cat(states);
}

void set_random_state(const at::Tensor& state, c10::Device device) {
  std::vector<std::int64_t> sizes;
  for (at::Generator& generator : generators(device)) {
    const std::scoped_lock lock(generator.mutex());
    sizes.push_back(generator.get_state().numel());
  }
  const std::int64_t whole = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  // Saved on a device, or taken up by a process on one that was saved on the CPU: only the CPU's generator is
  // in both.
  const bool fits = state.numel() == whole || state.numel() == sizes.front() ||
                    (device.is_cpu() && state.numel() == whole + kCudaStateBytes);
  if (state.scalar_type() != at::kByte || state.dim() != 1 || !fits) {
    throw DataError(
        str("a saved random state has ", state.numel(), " elements of ", c10::toString(state.scalar_type()),
            ", this process on ", device.str(), " needs ", whole, " bytes, or the ", sizes.front(),
            " of the CPU's generator: it was saved by another libtorch or on another kind of device"));
  }
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < sizes.size() && offset < state.numel(); ++i) {
    at::Generator generator = generators(device)[i];
    const std::scoped_lock lock(generator.mutex());
    generator.set_state(state.narrow(0, offset, sizes[i]).clone());
    offset += sizes[i];
  }
}

}  // namespace rondo
