#include "rondo/backend/native/call_arguments.h"

#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

using Refuse = std::function<void(const std::string&)>;

Refuse refuse(const char* operation) {
  return [operation](const std::string& reason) { throw UsageError(str(operation, ": ", reason)); };
}

void check_defined(const Refuse& refused, const TensorList& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) refused("a tensor is undefined");
  }
}

// c10d's own checks ask for equal shapes; pieces of as many elements are enough here.
void check_like(const Refuse& refused, const TensorList& tensors, const at::Tensor& like) {
  check_defined(refused, tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    c10d::assertTypeMatch(refused, like.options(), tensors, i);
    if (tensors[i].numel() != like.numel()) c10d::assertSizesMatch(refused, like.sizes(), tensors, i);
  }
}

void check_list(const Refuse& refused, const TensorList& tensors) {
  c10d::assertNonEmpty(refused, tensors);
  check_defined(refused, tensors);
  c10d::assertLayoutMatch(refused, tensors);
  check_like(refused, tensors, tensors.front());
}

}  // namespace

void check_broadcast(const TensorList& tensors, const c10d::BroadcastOptions& options, int size) {
  const Refuse refused = refuse("broadcast");
  c10d::assertRootRank(refused, options.rootRank, size);
  c10d::assertRootTensor(refused, options.rootTensor, static_cast<std::int64_t>(tensors.size()));
  check_list(refused, tensors);
}

void check_all_reduce(const TensorList& tensors, const c10d::ReduceOp& op) {
  const Refuse refused = refuse("all_reduce");
  c10d::assertNonEmpty(refused, tensors);
  check_defined(refused, tensors);
  c10d::assertLayoutMatch(refused, tensors);
  c10d::assertTypeAndSizesMatch(refused, tensors);
  if (tensors.front().layout() != at::kStrided && op != c10d::ReduceOp::SUM) {
    refused("unsupported reduction operation (sparse tensors are reduced with SUM only)");
  }
}

void check_all_reduce_coalesced(const TensorList& tensors) {
  const Refuse refused = refuse("all_reduce_coalesced");
  c10d::assertNonEmpty(refused, tensors);
  check_defined(refused, tensors);
  c10d::assertLayoutMatch(refused, tensors);
  for (const at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() != tensors.front().scalar_type()) refused("tensors must all have the same type");
  }
  if (tensors.front().layout() != at::kStrided)
    refused("unsupported layout; all_reduce takes sparse tensors");
}

void check_reduce(const TensorList& tensors, const c10d::ReduceOptions& options, int size) {
  const Refuse refused = refuse("reduce");
  c10d::assertRootRank(refused, options.rootRank, size);
  c10d::assertRootTensor(refused, options.rootTensor, static_cast<std::int64_t>(tensors.size()));
  c10d::assertSingleElement(refused, tensors);
}

void check_all_gather(const TensorLists& outputs, const TensorList& inputs, int size) {
  const Refuse refused = refuse("all_gather");
  c10d::assertNonEmptyInputTensorList(refused, inputs.size());
  c10d::assertInputOutputTensorListsSameSize(refused, outputs.size(), inputs.size());
  const std::size_t expected = inputs.size() * static_cast<std::size_t>(size);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].size() == expected) continue;
    refused(str("invalid output tensor list at index ", i, " (expected length ", expected, ", got ",
                outputs[i].size(), ")"));
  }
  check_list(refused, inputs);
  for (const TensorList& list : outputs) check_like(refused, list, inputs.front());
}

void check_all_gather_coalesced(const TensorLists& outputs, const TensorList& inputs, int size) {
  const Refuse refused = refuse("all_gather_coalesced");
  c10d::assertNonEmptyInputTensorList(refused, inputs.size());
  c10d::assertAllgatherCoalescedOutputTensorLists(refused, outputs, inputs.size(), size);
  check_defined(refused, inputs);
  for (const TensorList& list : outputs) {
    check_defined(refused, list);
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].sizes() != inputs[i].sizes()) {
        refused(rondo::str("invalid size of output tensor at index ", i, " (expected ", inputs[i].sizes(),
                           ", got ", list[i].sizes(), ")"));
      }
      c10d::assertTypeMatch(refused, inputs[i].options(), list, i);
    }
  }
}

void check_gather(const TensorLists& outputs, const TensorList& inputs, const c10d::GatherOptions& options,
                  int rank, int size) {
  const Refuse refused = refuse("gather");
  c10d::assertRootRank(refused, options.rootRank, size);
  c10d::assertSingleElementInput(refused, inputs);
  check_defined(refused, inputs);
  if (rank != options.rootRank) {
    c10d::assertEmptyOutputTensorList(refused, outputs);
    return;
  }
  c10d::assertGatherOutputTensorList(refused, outputs, size);
  check_like(refused, outputs.front(), inputs.front());
}

void check_scatter(const TensorList& outputs, const TensorLists& inputs, const c10d::ScatterOptions& options,
                   int rank, int size) {
  const Refuse refused = refuse("scatter");
  c10d::assertRootRank(refused, options.rootRank, size);
  c10d::assertSingleElementOutput(refused, outputs);
  check_defined(refused, outputs);
  if (rank != options.rootRank) {
    c10d::assertEmptyInputTensorList(refused, inputs);
    return;
  }
  c10d::assertScatterInputTensorList(refused, inputs, size);
  check_like(refused, inputs.front(), outputs.front());
}

}  // namespace rondo
