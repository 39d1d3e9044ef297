#pragma once

#include <optional>

#include "rondo/parallel/ddp/gradient_exchange.h"
#include "rondo/parallel/ddp/in_place_buckets.h"

namespace rondo {

// The exchange of ddp on one host, through the native engine.
class InPlaceExchange final : public GradientExchange {
 public:
  InPlaceExchange(std::vector<ModelTensor> parameters, Group group, const DdpOptions& options);
  ~InPlaceExchange() override;

  void set_order(std::span<const std::size_t> order) override;
  void begin_backward(WeightSource weight) override;
  // Makes the gradient defined.
  void gradient_ready(std::size_t parameter) override { buckets_->take(parameter); }
  void gradient_missing(std::size_t parameter) override;
  void finish(const std::vector<bool>& untouched) override;
  void abandon() noexcept override;

 private:
  BucketFuture start(std::size_t bucket) override { return buckets_->start(bucket, weight()); }

  const Bytes bucket_bytes_;               // of small gradients
  std::optional<InPlaceBuckets> buckets_;  // from set_order() on
  std::vector<std::size_t> missing_;       // parameters without gradient in this pass ...
  std::vector<at::Tensor> saved_;          // ... and, side by side, what `.grad` held before
};

}  // namespace rondo
