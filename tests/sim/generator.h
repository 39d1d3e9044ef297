#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace rondo::sim {

// A device's random generator. As CUDA's, it is a seed and an offset (16 bytes of state), and its numbers
// differ from those of the CPU's generator for the same seed.
class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device);

  // Returns a CPU generator for the next operator.
  at::Generator next();

  void set_current_seed(std::uint64_t seed) override;
  void set_offset(std::uint64_t offset) override { offset_ = offset; }
  std::uint64_t get_offset() const override { return offset_; }
  std::uint64_t current_seed() const override { return seed_; }
  std::uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

 private:
  Generator* clone_impl() const override;

  // GeneratorImpl::mutex_, which callers hold, protects these.
  std::uint64_t seed_ = c10::default_rng_seed_val;
  std::uint64_t offset_ = 0;
};

// Returns the generator of a device; -1: the current one.
const at::Generator& default_generator(c10::DeviceIndex device);

}  // namespace rondo::sim
