#pragma once

#include "rondo/parallel/ddp/bucket_plan.h"
#include "rondo/parallel/ddp/gradient_exchange.h"

namespace rondo {

// Copies gradients into flat buckets and all-reduces each as soon as it is complete, or hands it to a
// communication hook. Works with any c10d backend. Source: Li et al., "PyTorch Distributed: Experiences on
// Accelerating Data Parallel Training", VLDB 2020.
class BucketedExchange final : public GradientExchange {
 public:
  // `hook` replaces the all-reduce if its `run` is set.
  BucketedExchange(std::vector<ModelTensor> parameters, Group group, const DdpOptions& options,
                   CommHook hook = {});
  ~BucketedExchange() override;

  void set_order(std::span<const std::size_t> order) override;
  void begin_backward(WeightSource weight) override;
  void gradient_ready(std::size_t parameter) override;
  void gradient_missing(std::size_t parameter) override;
  void finish(const std::vector<bool>& untouched) override;
  void abandon() noexcept override;

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;
    at::Tensor flat;
  };

  BucketFuture start(std::size_t bucket) override;
  // Whether the engine divides, after an addition that is the same for every engine.
  bool engine_divides() const { return !hook_.run && in_rank_order_ && weight().equal; }
  // What gradients are multiplied with on their way into a bucket; the same for all of a pass.
  const at::Tensor& factor();
  // A hook's result becomes the bucket.
  void take_result(std::size_t bucket, const at::Tensor& result);
  void copy_in(std::size_t parameter);
  void copy_out(std::size_t parameter);

  const Bytes bucket_bytes_;
  const Bytes first_bucket_bytes_;
  const bool as_view_;
  const CommHook hook_;
  const bool in_rank_order_;  // the engine is deterministic: it divides as every such engine does
  std::vector<Bucket> buckets_;
  std::vector<at::Tensor> places_;  // by parameter: its part of its bucket, shaped like the parameter
  at::Tensor factor_;               // of this pass, once known: a scalar
  std::vector<at::Tensor> saved_;   // by parameter: gradients that finish may have to restore
};

}  // namespace rondo
