#pragma once

#include <ATen/core/Generator.h>
#include <c10/core/GeneratorImpl.h>

namespace rondo::sim {

// A device's generator of random numbers. As CUDA's, it is a seed and an offset (16 bytes of state), and its
// numbers are other ones than the CPU's generator gives for the same seed.
class Generator final : public c10::GeneratorImpl {
 public:
  explicit Generator(c10::DeviceIndex device);

  // A CPU generator for the next operator.
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

  // Protected by GeneratorImpl::mutex_, which callers hold.
  std::uint64_t seed_ = c10::default_rng_seed_val;
  std::uint64_t offset_ = 0;
};

// The generator of a device; -1: of the current one.
const at::Generator& default_generator(c10::DeviceIndex device);

}  // namespace rondo::sim
