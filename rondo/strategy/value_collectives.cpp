#include "rondo/strategy/value_collectives.h"

#include <ATen/Dispatch.h>
#include <torch/types.h>

#include <algorithm>
#include <limits>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Returns the neutral element of `op`, the contribution of a replica with an empty axis.
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

int ranks_of(const Group& group) { return group.member() ? group.size() : 1; }

// Returns the operation of the all-reduce; AVG divides afterwards by the total count.
ReduceOp without_division(ReduceOp op) { return op == ReduceOp::AVG ? ReduceOp::SUM : op; }

at::Tensor combined(ReduceOp op, const at::Tensor& a, const at::Tensor& b) {
  switch (op) {
    case ReduceOp::SUM:
      return a + b;
    case ReduceOp::PRODUCT:
      return a * b;
    case ReduceOp::MIN:
      return at::minimum(a, b);
    case ReduceOp::MAX:
      return at::maximum(a, b);
    case ReduceOp::BAND:
      return at::bitwise_and(a, b);
    case ReduceOp::BOR:
      return at::bitwise_or(a, b);
    case ReduceOp::BXOR:
      return at::bitwise_xor(a, b);
    default:
      throw UsageError("Strategy::reduce takes SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR");
  }
}

}  // namespace

at::Tensor reduce_values(ReduceOp op, const std::vector<at::Tensor>& local, std::optional<std::int64_t> axis,
                         const Group& group) {
  const ReduceOp adds = without_division(op);
  at::Tensor result;
  std::int64_t count = 0;
  for (const at::Tensor& value : local) {
    at::Tensor own = value.detach();
    if (axis) {
      const std::int64_t dimension = checked_axis(own, *axis);
      count += own.size(dimension);
      own = reduce_locally(op, own, dimension);
    }
    // Copies the first one, because the all-reduce is in place.
    if (!result.defined()) {
      result = axis ? own : own.clone();
    } else {
      result = combined(adds, result, own.to(result.device()));
    }
  }
  const int ranks = ranks_of(group);
  if (op == ReduceOp::AVG && local.size() == 1 && !axis) {
    if (ranks > 1) all_reduce(result, group, op);  // the engine divides
    return result;
  }
  if (ranks > 1) all_reduce(result, group, adds);
  if (op != ReduceOp::AVG) return result;
  if (!axis) return result / static_cast<double>(local.size() * static_cast<std::size_t>(ranks));
  at::Tensor elements = at::full({1}, count, at::kLong);
  if (ranks > 1) all_reduce(elements, group, ReduceOp::SUM);
  return result / elements.item<std::int64_t>();
}

at::Tensor gather_values(const std::vector<at::Tensor>& local, std::int64_t axis, const Group& group) {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& value : local) {
    const at::Tensor own = value.detach();
    checked_axis(own, axis);
    rows.push_back(rows.empty() ? own : own.to(rows.front().device()));
  }
  at::Tensor mine = rows.size() == 1 ? rows.front() : at::cat(rows, axis);
  const std::int64_t dimension = checked_axis(mine, axis);
  if (ranks_of(group) == 1) return mine;

  // Engines gather equal shapes, so every rank pads to the longest and removes the padding afterwards.
  const std::vector<at::Tensor> lengths = all_gather(at::full({1}, mine.size(dimension), at::kLong), group);
  std::int64_t longest = 0;
  for (const at::Tensor& length : lengths) longest = std::max(longest, length.item<std::int64_t>());
  std::vector<std::int64_t> shape = mine.sizes().vec();
  shape[static_cast<std::size_t>(dimension)] = longest;
  at::Tensor padded = at::zeros(shape, mine.options());
  padded.narrow(dimension, 0, mine.size(dimension)).copy_(mine);
  std::vector<at::Tensor> parts = all_gather(padded, group);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i] = parts[i].narrow(dimension, 0, lengths[i].item<std::int64_t>());
  }
  return at::cat(parts, dimension);
}

}  // namespace rondo
