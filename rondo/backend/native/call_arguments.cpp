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

// Checks that c10d has only from libtorch 2.12 on, in its words.
void check_some_inputs(const Refuse& refused, const TensorList& inputs) {
  if (inputs.empty()) refused("requires non-empty input tensor list");
}

// The root of a gather or scatter has one list, with a tensor for each rank.
void check_list_of_root(const Refuse& refused, const TensorLists& lists, int size, const std::string& which) {
  if (lists.size() != 1) {
    refused(str("requires a single-element ", which, " list containing a list with ", size, " tensors."));
  }
  if (lists.front().size() != static_cast<std::size_t>(size)) {
    refused(str("Incorrect ", which, " list size ", lists.front().size(), ". ",
                which == "input" ? "Input" : "Output", " list size should be ", size,
                ", same as size of the process group."));
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
  check_some_inputs(refused, inputs);
  if (outputs.size() != inputs.size()) refused("requires input/output tensor lists to have the same length");
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
  check_some_inputs(refused, inputs);
  if (outputs.size() != static_cast<std::size_t>(size)) refused("output lists should be equal to world size");
  for (const TensorList& list : outputs) {
    if (list.size() == inputs.size()) continue;
    refused(str("invalid output size: (expected length ", inputs.size(), ", got ", list.size(), ")"));
  }
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
    if (!outputs.empty()) refused("requires empty output on non-root");
    return;
  }
  check_list_of_root(refused, outputs, size, "output");
  check_like(refused, outputs.front(), inputs.front());
}

void check_scatter(const TensorList& outputs, const TensorLists& inputs, const c10d::ScatterOptions& options,
                   int rank, int size) {
  const Refuse refused = refuse("scatter");
  c10d::assertRootRank(refused, options.rootRank, size);
  c10d::assertSingleElementOutput(refused, outputs);
  check_defined(refused, outputs);
  if (rank != options.rootRank) {
    if (!inputs.empty()) refused("requires empty input on non-root");
    return;
  }
  check_list_of_root(refused, inputs, size, "input");
  check_like(refused, inputs.front(), outputs.front());
}

}  // namespace rondo
