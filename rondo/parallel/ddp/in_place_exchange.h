#pragma once

#include "rondo/parallel/ddp/gradient_exchange.h"

namespace rondo {

// Reduces every large gradient where autograd put it, without a copy; only gradients below 64 KiB, where the
// cost is in the message and not in the bytes, share flat buckets. For engines with registered
// memory (EngineTraits): CPU allocations of that size are shared memory, and each rank reduces its slice of
// the elements straight from and into all ranks' gradients. On one host communication is processor time, so
// what is not copied is gained even when computation hides it.
class InPlaceExchange final : public GradientExchange {
 public:
  InPlaceExchange(std::vector<ModelTensor> parameters, Group group, const DdpOptions& options);
  ~InPlaceExchange() override;

  // Bytes of the flat buckets, which stay as long as the exchange does.
  static std::uint64_t bucket_bytes(const std::vector<ModelTensor>& parameters);

  void set_order(std::span<const std::size_t> order) override;
  void begin_backward(WeightSource weight) override;
  // Makes the gradient defined.
  void gradient_ready(std::size_t parameter) override;
  void gradient_missing(std::size_t parameter) override;
  void finish(const std::vector<bool>& untouched) override;
  void abandon() noexcept override;

 private:
  // What is reduced by one operation: one large gradient, or several small ones.
  struct Bucket {
    std::vector<std::size_t> parameters;
    at::Tensor flat;  // undefined for a large gradient
  };

  BucketFuture start(std::size_t bucket) override;

  const Bytes bucket_bytes_;  // of small gradients
  std::vector<Bucket> buckets_;
  std::vector<at::Tensor> places_;    // by parameter: its part of a bucket of small gradients
  std::vector<std::size_t> missing_;  // parameters without gradient in this pass ...
  std::vector<at::Tensor> saved_;     // ... and, side by side, what `.grad` held before
};

}  // namespace rondo
