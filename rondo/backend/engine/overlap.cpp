#include "rondo/backend/engine/overlap.h"

#include <ATen/MemoryOverlap.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Where the elements of one tensor, or of a contiguous part of it, lie.
struct Extent {
  std::uintptr_t begin;
  std::uintptr_t end;
  const at::Tensor* tensor;
  bool filled;  // every byte between is an element's
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

// Element by element, for tensors with gaps whose ranges meet.
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

// The pieces of the only tensor where it holds one for each rank, as the only one on the other side shows.
std::vector<at::Tensor> in_pieces(std::span<const at::Tensor> tensors, std::span<const at::Tensor> others,
                                  int ranks) {
  const auto as_they_are = [&] { return std::vector<at::Tensor>(tensors.begin(), tensors.end()); };
  if (ranks == 1 || tensors.size() != 1 || others.size() != 1) return as_they_are();
  const at::Tensor& whole = tensors.front();
  const std::int64_t piece = others.front().numel();
  if (piece == 0 || whole.numel() != piece * ranks || !whole.is_contiguous()) return as_they_are();
  return whole.detach().view({-1}).split(piece);
}

// An input and an output that are this rank's own piece, in place.
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
