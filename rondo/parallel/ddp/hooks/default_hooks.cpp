#include "rondo/parallel/ddp/hooks/default_hooks.h"

#include <torch/types.h>

namespace rondo {
namespace {

BucketFuture compress(const Group& group, const GradBucket& bucket, at::ScalarType dtype) {
  const at::Tensor& buffer = bucket.buffer();
  if (!buffer.is_floating_point()) return start_average(group, buffer);
  return start_average(group, buffer.to(dtype)).then([buffer](const at::Tensor& mean) {
    return buffer.copy_(mean);
  });
}

CommHook wrap(CommHook hook, const char* name, at::ScalarType dtype) {
  CommHook outer{std::string(name) + " around " + hook.name, {}, hook.save, hook.restore};
  outer.run = [hook = std::move(hook), dtype](GradBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    if (!buffer.is_floating_point()) return hook.run(bucket);
    bucket.set_buffer(buffer.to(dtype));
    return hook.run(bucket).then([buffer](const at::Tensor& result) { return buffer.copy_(result); });
  };
  return outer;
}

}  // namespace

BucketFuture start_sum(const Group& group, const at::Tensor& tensor) {
  return start_sum(*group.backend(), tensor);
}

BucketFuture start_sum(c10d::Backend& engine, const at::Tensor& tensor) {
  std::vector<at::Tensor> message = {tensor.is_complex() ? at::view_as_real(tensor) : tensor};
  return {engine.allreduce(message), tensor};
}

BucketFuture start_average(const Group& group, const at::Tensor& tensor) {
  return start_average(*group.backend(), tensor);
}

BucketFuture start_average(c10d::Backend& engine, const at::Tensor& tensor) {
  // Division first keeps sums of half-precision numbers in range.
  tensor.div_(engine.getSize());
  return start_sum(engine, tensor);
}

CommHook allreduce_hook(const Group& group) {
  return {"allreduce", [group](GradBucket& bucket) { return start_average(group, bucket.buffer()); }};
}

CommHook fp16_compress_hook(const Group& group) {
  return {"fp16_compress", [group](GradBucket& bucket) { return compress(group, bucket, at::kHalf); }};
}

CommHook bf16_compress_hook(const Group& group) {
  return {"bf16_compress", [group](GradBucket& bucket) { return compress(group, bucket, at::kBFloat16); }};
}

CommHook fp16_compress_wrapper(CommHook hook) { return wrap(std::move(hook), "fp16", at::kHalf); }

CommHook bf16_compress_wrapper(CommHook hook) { return wrap(std::move(hook), "bf16", at::kBFloat16); }

CommHook noop_hook() {
  return {"noop", [](GradBucket& bucket) -> BucketFuture { return bucket.buffer(); }};
}

}  // namespace rondo
