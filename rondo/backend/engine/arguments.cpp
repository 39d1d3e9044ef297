#include "rondo/backend/engine/arguments.h"

#include <ATen/ATen.h>

#include "rondo/backend/engine/overlap.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

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
    default:
      throw UsageError("reductions are SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR and BXOR only");
  }
  if (c10::isComplexType(type) && reduction != Reduction::sum && reduction != Reduction::average) {
    throw UsageError(str("reduction ", name(reduction), " is not defined on complex numbers"));
  }
  return reduction;
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
  if (!splits.empty()) return tensor.split_with_sizes(splits);
  if (tensor.size(0) % size != 0) {
    throw UsageError(
        str(operation, ": the first dimension, ", tensor.size(0), ", does not divide by ", size));
  }
  return tensor.split_with_sizes(
      std::vector<std::int64_t>(static_cast<std::size_t>(size), tensor.size(0) / size));
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
  throw UsageError(rondo::str(operation, ": the tensor of rank ", rank, " has ", own.sizes(),
                              ", its place in the list ", like.sizes()));
}

void check_divides(const at::Tensor& large, const at::Tensor& small, int size, const char* operation) {
  if (large.scalar_type() != small.scalar_type() || large.numel() != small.numel() * size) {
    throw UsageError(rondo::str(operation, ": ", large.sizes(), " ", large.scalar_type(), " is not ", size,
                                " times ", small.sizes(), " ", small.scalar_type()));
  }
}

}  // namespace rondo
