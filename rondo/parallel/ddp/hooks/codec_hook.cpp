#include "rondo/parallel/ddp/hooks/codec_hook.h"

#include <torch/types.h>

#include <map>

#include "rondo/backend/coded_all_reduce.h"
#include "rondo/parallel/ddp/hooks/default_hooks.h"

namespace rondo {
namespace {

// One stream of all-reduces a bucket, and the residuals on their way from one layout of buckets to the next.
// Used by the thread that drives the backward pass.
class CodecStreams {
 public:
  CodecStreams(Group group, std::string codec) : group_(std::move(group)), codec_(std::move(codec)) {
    collective::make_codec(codec_);
  }

  BucketFuture run(const GradBucket& bucket) {
    const at::Tensor& buffer = bucket.buffer();
    if (buffer.scalar_type() != at::kFloat) return start_average(group_, buffer);
    CodedAllReduce& reduction = stream_of(bucket);
    return continue_with(reduction, reduction.start(buffer), buffer);
  }

 private:
  struct Stream {
    std::vector<at::Tensor> parameters;
    std::unique_ptr<CodedAllReduce> reduction;
  };

  static BucketFuture continue_with(CodedAllReduce& reduction, CodedAllReduce::Work work,
                                    const at::Tensor& buffer) {
    if (!work) return buffer;
    return BucketFuture(std::move(work), buffer).then_send([&reduction](const at::Tensor& values) {
      return continue_with(reduction, reduction.next(), values);
    });
  }

  static bool same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                      [](const at::Tensor& x, const at::Tensor& y) { return x.is_same(y); });
  }

  CodedAllReduce& stream_of(const GradBucket& bucket) {
    Stream& stream = streams_[bucket.index()];
    if (stream.reduction && same(stream.parameters, bucket.parameters())) return *stream.reduction;
    // Buckets come in order, so this one and those behind it are not under way: all that they hold is kept
    // until its parameters appear again.
    for (auto old = streams_.find(bucket.index()); old != streams_.end(); ++old) keep_residuals(old->second);
    stream.parameters = bucket.parameters();
    stream.reduction = std::make_unique<CodedAllReduce>(collective::make_codec(codec_), group_.backend(),
                                                        ReduceOp::AVG, /*error_feedback=*/true);
    stream.reduction->reserve(bucket.buffer());
    if (const at::Tensor residual = stream.reduction->residual(); residual.defined()) {
      std::int64_t offset = 0;
      for (const at::Tensor& parameter : stream.parameters) {
        const auto kept = kept_.extract(parameter.unsafeGetTensorImpl());
        if (!kept.empty()) residual.narrow(0, offset, parameter.numel()).copy_(kept.mapped());
        offset += parameter.numel();
      }
    }
    return *stream.reduction;
  }

  void keep_residuals(Stream& stream) {
    const auto reduction = std::move(stream.reduction);
    if (!reduction || !reduction->residual().defined()) return;
    std::int64_t offset = 0;
    for (const at::Tensor& parameter : stream.parameters) {
      kept_[parameter.unsafeGetTensorImpl()] = reduction->residual().narrow(0, offset, parameter.numel());
      offset += parameter.numel();
    }
  }

  const Group group_;
  const std::string codec_;
  std::map<std::size_t, Stream> streams_;   // by bucket
  std::map<const void*, at::Tensor> kept_;  // by parameter
};

}  // namespace

CommHook codec_hook(const Group& group, const std::string& codec) {
  const auto streams = std::make_shared<CodecStreams>(group, codec);
  return {"codec " + codec, [streams](GradBucket& bucket) { return streams->run(bucket); }};
}

}  // namespace rondo
