#include "rondo/strategy/process_strategy.h"

#include <ATen/Dispatch.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

const at::Tensor& only_tensor(const ReplicaValue& value) {
  if (value.size() != 1) {
    throw UsageError(
        str("this strategy has one replica per process, so a value has one tensor, not ", value.size()));
  }
  return value.tensors().front();
}

// The value that changes nothing when combined by `op`: what a replica with an empty axis contributes.
at::Scalar neutral_element(ReduceOp op, at::ScalarType dtype) {
  if (op == ReduceOp::SUM || op == ReduceOp::AVG) return 0;
  return AT_DISPATCH_ALL_TYPES_AND2(at::kHalf, at::kBFloat16, dtype, "neutral_element", [&] {
    using Limits = std::numeric_limits<scalar_t>;
    return at::Scalar(op == ReduceOp::MAX ? Limits::lowest() : Limits::max());
  });
}

at::Tensor reduce_locally(ReduceOp op, const at::Tensor& value, std::int64_t axis) {
  if (value.size(axis) == 0) {
    std::vector<std::int64_t> shape = value.sizes().vec();
    shape.erase(shape.begin() + axis);
    return at::full(shape, neutral_element(op, value.scalar_type()), value.options());
  }
  switch (op) {
    case ReduceOp::SUM:
    case ReduceOp::AVG:
      return value.sum(axis, /*keepdim=*/false, value.scalar_type());
    case ReduceOp::MIN:
      return value.amin(axis);
    case ReduceOp::MAX:
      return value.amax(axis);
    default:
      throw UsageError("Strategy::reduce with an axis takes SUM, AVG, MIN or MAX");
  }
}

std::int64_t checked_axis(const at::Tensor& value, std::int64_t axis) {
  const std::int64_t dimensions = value.dim();
  if (axis < -dimensions || axis >= dimensions) {
    throw UsageError(str("axis ", axis, " does not exist in a value of ", dimensions, " dimensions"));
  }
  return axis < 0 ? axis + dimensions : axis;
}

}  // namespace

ReplicaValue ProcessStrategy::run(const std::function<at::Tensor(int replica)>& step) {
  return step(context_.rank());
}

at::Tensor ProcessStrategy::reduce(ReduceOp op, const ReplicaValue& value, std::optional<std::int64_t> axis) {
  const at::Tensor& local = only_tensor(value);
  if (!axis) {
    at::Tensor result = local.detach().clone();
    all_reduce(result, context_.world(), op);
    return result;
  }
  const std::int64_t dimension = checked_axis(local, *axis);
  at::Tensor result = reduce_locally(op, local.detach(), dimension);
  all_reduce(result, context_.world(), op == ReduceOp::AVG ? ReduceOp::SUM : op);
  if (op == ReduceOp::AVG) {
    at::Tensor elements = at::full({1}, local.size(dimension), at::kLong);
    all_reduce(elements, context_.world(), ReduceOp::SUM);
    result = result / elements.item<std::int64_t>();
  }
  return result;
}

at::Tensor ProcessStrategy::gather(const ReplicaValue& value, std::int64_t axis) {
  const at::Tensor local = only_tensor(value).detach();
  const std::int64_t dimension = checked_axis(local, axis);
  if (context_.world_size() == 1) return local;

  // Engines gather equal shapes, so every rank pads to the longest and the padding is cut off afterwards.
  const std::vector<at::Tensor> lengths =
      all_gather(at::full({1}, local.size(dimension), at::kLong), context_.world());
  std::int64_t longest = 0;
  for (const at::Tensor& length : lengths) longest = std::max(longest, length.item<std::int64_t>());
  std::vector<std::int64_t> shape = local.sizes().vec();
  shape[static_cast<std::size_t>(dimension)] = longest;
  at::Tensor padded = at::zeros(shape, local.options());
  padded.narrow(dimension, 0, local.size(dimension)).copy_(local);
  std::vector<at::Tensor> parts = all_gather(padded, context_.world());
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i] = parts[i].narrow(dimension, 0, lengths[i].item<std::int64_t>());
  }
  return at::cat(parts, dimension);
}

}  // namespace rondo
