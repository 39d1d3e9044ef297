#include "rondo/parallel/hooks/default_hooks.h"

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
  // Dividing first keeps sums of half-precision numbers in range.
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

CommHook ring_hook(const Group& group) {
  const auto run = [group](GradBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    const std::int64_t part_elements = (buffer.numel() + group.size() - 1) / group.size();
    const std::int64_t padding = part_elements * group.size() - buffer.numel();
    at::Tensor flat = padding == 0 ? buffer : at::constant_pad_nd(buffer, {0, padding});
    flat.div_(group.size());
    at::Tensor part = at::empty({part_elements}, flat.options());
    return BucketFuture(group.backend()->_reduce_scatter_base(part, flat), flat)
        .then_send([group, part, elements = buffer.numel()](at::Tensor whole) mutable {
          return BucketFuture(group.backend()->_allgather_base(whole, part), whole)
              .then([elements](const at::Tensor& mean) { return mean.narrow(0, 0, elements); });
        });
  };
  return {"ring", run};
}

CommHook fp16_compress_wrapper(CommHook hook) { return wrap(std::move(hook), "fp16", at::kHalf); }

CommHook bf16_compress_wrapper(CommHook hook) { return wrap(std::move(hook), "bf16", at::kBFloat16); }

CommHook noop_hook() {
  return {"noop", [](GradBucket& bucket) -> BucketFuture { return bucket.buffer(); }};
}

}  // namespace rondo
