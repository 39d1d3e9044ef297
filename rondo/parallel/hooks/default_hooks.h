#pragma once

#include "rondo/backend/group.h"
#include "rondo/parallel/hooks/comm_hook.h"

// PyTorch's default communication hooks (torch.distributed.algorithms.ddp_comm_hooks.default_hooks), for
// DistributedDataParallel::register_comm_hook. Any engine and device.
namespace rondo {

// Returns a hook that divides and all-reduces: the same gradients as without a hook.
CommHook allreduce_hook(const Group& group);

// Returns a hook that all-reduces in float16, half the bytes of float32. Gradients are converted, divided,
// summed by the engine in float16, and converted back. Magnitudes above 65504 become infinite in float16.
// Buckets of integers are all-reduced as they are.
CommHook fp16_compress_hook(const Group& group);
// Like fp16_compress_hook(), in bfloat16.
CommHook bf16_compress_hook(const Group& group);

// Returns a hook that averages by a reduce-scatter and an all-gather, TensorFlow's
// CommunicationImplementation.RING. A bucket is copied if its length is not a multiple of the number of
// ranks.
CommHook ring_hook(const Group& group);

// Returns a hook that passes the bucket to `hook` in float16.
CommHook fp16_compress_wrapper(CommHook hook);
// Like fp16_compress_wrapper(), in bfloat16.
CommHook bf16_compress_wrapper(CommHook hook);

// Returns a hook that communicates nothing, to measure training speed without communication. Ranks diverge.
CommHook noop_hook();

// Starts computing the mean of `tensor` over the ranks, in place; for use in hooks.
BucketFuture start_average(const Group& group, const at::Tensor& tensor);
// Starts computing the sum of `tensor` over the ranks, in place; for use in hooks.
BucketFuture start_sum(const Group& group, const at::Tensor& tensor);
// Like start_average(group, tensor), over an engine.
BucketFuture start_average(c10d::Backend& engine, const at::Tensor& tensor);
// Like start_sum(group, tensor), over an engine.
BucketFuture start_sum(c10d::Backend& engine, const at::Tensor& tensor);

}  // namespace rondo
