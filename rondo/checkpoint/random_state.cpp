#include "rondo/checkpoint/random_state.h"

#include <torch/types.h>

#include <mutex>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

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
  std::int64_t expected = 0;
  for (at::Generator& generator : generators(device)) {
    const std::scoped_lock lock(generator.mutex());
    sizes.push_back(generator.get_state().numel());
    expected += sizes.back();
  }
  if (state.scalar_type() != at::kByte || state.dim() != 1 || state.numel() != expected) {
    throw DataError(str("a saved random state has ", state.numel(), " elements of ",
                        c10::toString(state.scalar_type()), ", this process on ", device.str(), " needs ",
                        expected, " bytes: it was saved on another kind of device or by another libtorch"));
  }
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    at::Generator generator = generators(device)[i];
    const std::scoped_lock lock(generator.mutex());
    generator.set_state(state.narrow(0, offset, sizes[i]).clone());
    offset += sizes[i];
  }
}

}  // namespace rondo
