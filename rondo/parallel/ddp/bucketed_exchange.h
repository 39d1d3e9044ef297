#pragma once

#include "rondo/parallel/ddp/bucket_plan.h"
#include "rondo/parallel/ddp/gradient_exchange.h"
#include "rondo/parallel/ddp/reduction_queue.h"

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
  void begin_backward(const GradientWeight& weight) override;
  void gradient_ready(std::size_t parameter) override;
  void gradient_missing(std::size_t parameter) override;
  void start_all() override { queue_.start_all(); }
  void finish(const std::vector<bool>& untouched) override;
  void abandon() noexcept override;
  const std::vector<BucketTrace>& trace() const override { return queue_.trace(); }

 private:
  struct Bucket {
    std::vector<std::size_t> parameters;
    at::Tensor flat;
  };

  BucketFuture start(std::size_t bucket);
  // Whether the engine divides, after an addition that is the same for every engine.
  bool engine_divides() const { return !hook_.run && in_rank_order_ && weight_.equal; }
  // What gradients are multiplied with on their way into a bucket.
  double factor() const;
  // A hook's result becomes the bucket.
  void take_result(std::size_t bucket, const at::Tensor& result);
  void copy_in(std::size_t parameter);
  void copy_out(std::size_t parameter);

  const std::vector<ModelTensor> parameters_;
  const Group group_;
  const Bytes bucket_bytes_;
  const Bytes first_bucket_bytes_;
  const bool as_view_;
  const CommHook hook_;
  const bool in_rank_order_;  // the engine adds as the native one does (InitOptions::reproducible)
  std::vector<Bucket> buckets_;
  std::vector<at::Tensor> places_;      // by parameter: its part of its bucket, shaped like the parameter
  std::vector<std::size_t> bucket_of_;  // by parameter
  std::vector<at::Tensor> saved_;       // by parameter: gradients that finish may have to restore
  GradientWeight weight_;
  at::Tensor factor_;  // 0-dimensional
  ReductionQueue queue_;
};

}  // namespace rondo
