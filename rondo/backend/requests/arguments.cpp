#include "rondo/backend/requests/arguments.h"

#include <ATen/ATen.h>
#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
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

// Checks that c10d has only since libtorch 2.12, with its messages.
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

// c10d's own checks require equal shapes; equal numbers of elements suffice here.
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

// The range of memory of a tensor's elements, or of a contiguous part of it.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
  const at::Tensor* tensor;
  bool filled;  // every byte of the range belongs to an element
  bool written;
  std::size_t number;

  std::string name() const { return str(written ? "output " : "input ", number); }
};

Extent extent_of(const at::Tensor& tensor, bool written, std::size_t number) {
  const auto begin = reinterpret_cast<std::uintptr_t>(tensor.const_data_ptr());
  std::uintptr_t last = 0;
  for (std::int64_t d = 0; d < tensor.dim(); ++d)
    last += static_cast<std::uintptr_t>((tensor.size(d) - 1) * tensor.stride(d));
  return {begin,   begin + (last + 1) * tensor.itemsize(),
          &tensor, tensor.is_non_overlapping_and_dense(),
          written, number};
}

bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.layout() == at::kStrided && tensor.numel() > 0 &&
         tensor.const_data_ptr() != nullptr;
}

// Calls `function` with the address of every element.
template <class Function>
void for_each_element(const at::Tensor& tensor, std::int64_t dimension, std::uintptr_t at,
                      Function& function) {
  if (dimension == tensor.dim()) return function(at);
  const auto step = static_cast<std::uintptr_t>(tensor.stride(dimension)) * tensor.itemsize();
  for (std::int64_t i = 0; i < tensor.size(dimension); ++i)
    for_each_element(tensor, dimension + 1, at + static_cast<std::uintptr_t>(i) * step, function);
}

// Compares element by element, for tensors with gaps whose ranges intersect.
bool share_elements(const Extent& a, const Extent& b) {
  const std::uintptr_t begin = std::max(a.begin, b.begin);
  const std::uintptr_t end = std::min(a.end, b.end);
  std::vector<bool> taken(end - begin);
  bool shared = false;
  const auto each_byte = [&](const Extent& extent, auto act) {
    const std::size_t width = extent.tensor->itemsize();
    auto element = [&](std::uintptr_t at) {
      for (std::uintptr_t byte = std::max(at, begin); byte < std::min(at + width, end); ++byte)
        act(byte - begin);
    };
    for_each_element(*extent.tensor, 0, extent.begin, element);
  };
  each_byte(a, [&](std::size_t byte) { taken[byte] = true; });
  each_byte(b, [&](std::size_t byte) { shared = shared || taken[byte]; });
  return shared;
}

bool overlap(const Extent& a, const Extent& b) {
  if (a.end <= b.begin || b.end <= a.begin) return false;
  return (a.filled && b.filled) || share_elements(a, b);
}

// Splits the only tensor into one piece per rank if its size and the only tensor of the other side match
// that.
std::vector<at::Tensor> in_pieces(std::span<const at::Tensor> tensors, std::span<const at::Tensor> others,
                                  int ranks) {
  const auto as_they_are = [&] { return std::vector<at::Tensor>(tensors.begin(), tensors.end()); };
  if (ranks == 1 || tensors.size() != 1 || others.size() != 1) return as_they_are();
  const at::Tensor& whole = tensors.front();
  const std::int64_t piece = others.front().numel();
  if (piece == 0 || whole.numel() != piece * ranks || !whole.is_contiguous()) return as_they_are();
  return whole.detach().view({-1}).split(piece);
}

// Returns whether an input and an output are both this rank's own piece, in place.
bool is_own_piece(const TouchedTensors& tensors, const Extent& a, const Extent& b, std::size_t inputs,
                  std::size_t outputs) {
  if (a.written == b.written || a.begin != b.begin || a.end != b.end) return false;
  if (!a.tensor->is_contiguous() || !b.tensor->is_contiguous()) return false;
  const auto own = static_cast<std::size_t>(tensors.rank);
  const Extent& input = a.written ? b : a;
  const Extent& output = a.written ? a : b;
  return (inputs == 1 || input.number == own) && (outputs == 1 || output.number == own);
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

Reduction reduction_of(const c10d::ReduceOp& op, at::ScalarType type) {
  Reduction reduction = Reduction::sum;
  switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
    case c10d::ReduceOp::SUM:
      reduction = Reduction::sum;
      break;
    case c10d::ReduceOp::AVG:
      reduction = Reduction::average;
      break;
    case c10d::ReduceOp::PRODUCT:
      reduction = Reduction::product;
      break;
    case c10d::ReduceOp::MIN:
      reduction = Reduction::minimum;
      break;
    case c10d::ReduceOp::MAX:
      reduction = Reduction::maximum;
      break;
    case c10d::ReduceOp::BAND:
      reduction = Reduction::bitwise_and;
      break;
    case c10d::ReduceOp::BOR:
      reduction = Reduction::bitwise_or;
      break;
    case c10d::ReduceOp::BXOR:
      reduction = Reduction::bitwise_xor;
      break;
    case c10d::ReduceOp::PREMUL_SUM:
      if (!c10::isFloatingType(type) && !c10::isComplexType(type))
        throw UsageError(rondo::str("PREMUL_SUM multiplies floating-point tensors, not ", type));
      reduction = Reduction::sum;
      break;
    default:
      throw UsageError("reductions are SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR and PREMUL_SUM only");
  }
  if (c10::isComplexType(type) && reduction != Reduction::sum && reduction != Reduction::average) {
    throw UsageError(str("reduction ", name(reduction), " is not defined on complex numbers"));
  }
  return reduction;
}

bool premultiplies(const c10d::ReduceOp& op) {
  return static_cast<c10d::ReduceOp::RedOpType>(op) == c10d::ReduceOp::PREMUL_SUM;
}

at::Tensor premultiplied(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (!premultiplies(op)) return tensor;
  const auto* const factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  if (factor == nullptr) throw UsageError("PREMUL_SUM has no factor");
  if (!factor->tensor_factor.defined()) return tensor.detach().mul(factor->double_factor);
  return tensor.detach().mul(factor->tensor_factor.to(tensor.device(), tensor.scalar_type()));
}

void check_peer(int peer, int size) {
  if (peer < 0 || peer >= size) throw UsageError(str("rank ", peer, " is not a rank of a group of ", size));
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* operation) {
  if (tensors.size() != 1) throw UsageError(str(operation, ": expected one tensor, got ", tensors.size()));
  return tensors.front();
}

at::Tensor combined(const std::vector<at::Tensor>& tensors, Reduction reduction, const char* operation) {
  at::Tensor all = tensors.front().detach().to(at::kCPU).clone(at::MemoryFormat::Contiguous);
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    const at::Tensor next = tensors[i].detach().to(at::kCPU);
    switch (reduction) {
      case Reduction::sum:
        all.add_(next);
        break;
      case Reduction::product:
        all.mul_(next);
        break;
      case Reduction::minimum:
        all = at::minimum(all, next);
        break;
      case Reduction::maximum:
        all = at::maximum(all, next);
        break;
      case Reduction::bitwise_and:
        all.bitwise_and_(next);
        break;
      case Reduction::bitwise_or:
        all.bitwise_or_(next);
        break;
      case Reduction::bitwise_xor:
        all.bitwise_xor_(next);
        break;
      case Reduction::average:
        throw UsageError(str(operation, ": AVG of several tensors in one call is not defined; pass one"));
    }
  }
  return all;
}

std::vector<std::vector<at::Tensor>> lists_by_input(const std::vector<std::vector<at::Tensor>>& by_rank,
                                                    const std::vector<at::Tensor>& inputs, int size,
                                                    const char* operation) {
  if (inputs.empty() || by_rank.size() != static_cast<std::size_t>(size)) {
    throw UsageError(str(operation, ": expected at least one input and a list of outputs for each of the ",
                         size, " ranks, got ", inputs.size(), " inputs and ", by_rank.size(), " lists"));
  }
  std::vector<std::vector<at::Tensor>> by_input(inputs.size());
  std::vector<at::Tensor> all;
  for (const auto& list : by_rank) {
    if (list.size() != inputs.size()) {
      throw UsageError(
          str(operation, ": a list of ", list.size(), " outputs does not fit ", inputs.size(), " inputs"));
    }
    for (std::size_t i = 0; i < list.size(); ++i) by_input[i].push_back(list[i]);
    all.insert(all.end(), list.begin(), list.end());
  }
  check_overlaps({.outputs = all}, operation);
  return by_input;
}

const std::vector<at::Tensor>& only_list(const std::vector<std::vector<at::Tensor>>& lists, int size,
                                         const at::Tensor& like, const char* operation) {
  if (lists.size() != 1 || lists.front().size() != static_cast<std::size_t>(size)) {
    throw UsageError(str(operation, ": expected one list with a tensor for each of the ", size, " ranks"));
  }
  for (const at::Tensor& tensor : lists.front()) {
    if (tensor.numel() != like.numel() || tensor.scalar_type() != like.scalar_type()) {
      throw UsageError(rondo::str(operation, ": all tensors must have one shape and dtype; found ",
                                  tensor.sizes(), " ", tensor.scalar_type(), " and ", like.sizes(), " ",
                                  like.scalar_type()));
    }
  }
  return lists.front();
}

void check_one_each(const std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, int size,
                    const char* operation) {
  const auto ranks = static_cast<std::size_t>(size);
  if (inputs.size() == ranks && outputs.size() == ranks) return;
  throw UsageError(str(operation, ": expected a tensor for each of the ", size, " ranks, got ", inputs.size(),
                       " inputs and ", outputs.size(), " outputs"));
}

std::vector<at::Tensor> pieces_by_rank(const at::Tensor& tensor, const std::vector<std::int64_t>& splits,
                                       int size, const char* operation) {
  if (!tensor.defined() || tensor.dim() == 0)
    throw UsageError(str(operation, ": a tensor has no first dimension to divide among the ranks"));
  const std::int64_t rows = tensor.size(0);
  if (splits.empty()) {
    if (rows % size != 0)
      throw UsageError(str(operation, ": the first dimension, ", rows, ", does not divide by ", size));
    return tensor.split_with_sizes(std::vector<std::int64_t>(static_cast<std::size_t>(size), rows / size));
  }
  const bool negative = std::any_of(splits.begin(), splits.end(), [](std::int64_t part) { return part < 0; });
  const std::int64_t sum = std::accumulate(splits.begin(), splits.end(), std::int64_t{0});
  if (splits.size() != static_cast<std::size_t>(size) || negative || sum != rows) {
    throw UsageError(str(operation, ": the splits, ", join(splits, ", "),
                         ", do not divide a first dimension of ", rows, " among ", size, " ranks"));
  }
  return tensor.split_with_sizes(splits);
}

bool differ_in_size(const std::vector<at::Tensor>& tensors) {
  bool differ = false;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) return false;
    differ |= tensor.numel() != tensors.front().numel();
  }
  return differ;
}

void check_pieces(const std::vector<at::Tensor>& pieces, const at::Tensor& own, int rank, int size,
                  const char* operation) {
  if (pieces.size() != static_cast<std::size_t>(size)) {
    throw UsageError(
        str(operation, ": expected a tensor for each of the ", size, " ranks, got ", pieces.size()));
  }
  if (!own.defined()) throw UsageError(str(operation, ": a tensor is undefined"));
  for (const at::Tensor& piece : pieces) {
    if (piece.scalar_type() == own.scalar_type()) continue;
    throw UsageError(str(operation, ": all tensors must have one dtype; found ",
                         c10::toString(piece.scalar_type()), " and ", c10::toString(own.scalar_type())));
  }
  const at::Tensor& like = pieces[static_cast<std::size_t>(rank)];
  if (like.numel() == own.numel()) return;
  throw UsageError(rondo::str(operation, ": invalid tensor size: the tensor of rank ", rank, " has ",
                              own.sizes(), ", its place in the list ", like.sizes()));
}

void check_divides(const at::Tensor& large, const at::Tensor& small, int size, const char* operation) {
  if (large.scalar_type() != small.scalar_type() || large.numel() != small.numel() * size) {
    throw UsageError(rondo::str(operation, ": ", large.sizes(), " ", large.scalar_type(), " is not ", size,
                                " times ", small.sizes(), " ", small.scalar_type()));
  }
}

void check_overlaps(const TouchedTensors& tensors, const char* operation) {
  for (std::size_t i = 0; i < tensors.outputs.size(); ++i) {
    const at::Tensor& output = tensors.outputs[i];
    if (!has_memory(output) || at::has_internal_overlap(output) != at::MemOverlap::Yes) continue;
    throw UsageError(rondo::str(operation, ": elements of output ", i, " of shape ", output.sizes(),
                                " and strides ", output.strides(),
                                " share memory, so that they cannot all be written; pass a clone"));
  }
  if (tensors.outputs.size() + tensors.inputs.size() < 2) return;
  const std::vector<at::Tensor> inputs = in_pieces(tensors.inputs, tensors.outputs, tensors.ranks);
  const std::vector<at::Tensor> outputs = in_pieces(tensors.outputs, tensors.inputs, tensors.ranks);
  std::vector<Extent> all;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (has_memory(outputs[i])) all.push_back(extent_of(outputs[i], true, i));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (has_memory(inputs[i])) all.push_back(extent_of(inputs[i], false, i));
  }
  std::sort(all.begin(), all.end(), [](const Extent& a, const Extent& b) { return a.begin < b.begin; });
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t k = i + 1; k < all.size() && all[k].begin < all[i].end; ++k) {
      const Extent& a = all[i];
      const Extent& b = all[k];
      if ((!a.written && !b.written) || is_own_piece(tensors, a, b, inputs.size(), outputs.size())) continue;
      if (!overlap(a, b)) continue;
      throw UsageError(
          str(operation, ": ", a.name(), " and ", b.name(),
              " overlap in memory, and what is written to one would destroy the other; pass a clone of "
              "one of them"));
    }
  }
}

}  // namespace rondo
