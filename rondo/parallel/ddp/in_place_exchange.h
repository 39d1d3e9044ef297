#pragma once

#include "rondo/parallel/ddp/gradient_exchange.h"
#include "rondo/parallel/ddp/reduction_queue.h"

namespace rondo {

// Reduces every large gradient where autograd put it, without a copy; only gradients below 64 KiB, where the
// cost is in the message and not in the bytes, share flat buckets. For the native engine, whose CPU
// allocations of that size are shared memory: each rank reduces its slice of the elements straight from and
// into all ranks' gradients. On one host communication is processor time, so what is not copied is gained
// even when computation hides it.
class InPlaceExchange final : public GradientExchange {
 public:
  InPlaceExchange(std::vector<ModelTensor> parameters, Group group, const DdpOptions& options);
  ~InPlaceExchange() override;

  // Bytes of the flat buckets, which stay as long as the exchange does.
  static std::uint64_t bucket_bytes(const std::vector<ModelTensor>& parameters);

  void set_order(std::span<const std::size_t> order) override;
  void begin_backward(const GradientWeight& weight) override;
  void gradient_ready(std::size_t parameter) override;
  void gradient_missing(std::size_t parameter) override;
  void start_all() override { queue_.start_all(); }
  void finish(const std::vector<bool>& untouched) override;
  void abandon() noexcept override;
  const std::vector<BucketTrace>& trace() const override { return queue_.trace(); }

 private:
  // What is reduced by one operation: one large gradient, or a bucket of small ones.
  struct Unit {
    std::vector<std::size_t> parameters;
    at::Tensor flat;  // undefined for a large gradient
  };

  c10::intrusive_ptr<c10d::Work> start(std::size_t unit);
  // Makes the gradient defined, and weighs it where the reduction itself does not.
  void prepare(std::size_t parameter);

  const std::vector<ModelTensor> parameters_;
  const Group group_;
  const Bytes bucket_bytes_;  // of small gradients
  std::vector<Unit> units_;
  std::vector<at::Tensor> places_;    // by parameter: its part of a bucket of small gradients
  std::vector<std::size_t> unit_of_;  // by parameter
  std::vector<std::size_t> missing_;  // parameters without gradient in this pass ...
  std::vector<at::Tensor> saved_;     // ... and, side by side, what `.grad` held before
  GradientWeight weight_;
  ReductionQueue queue_;
};

}  // namespace rondo
