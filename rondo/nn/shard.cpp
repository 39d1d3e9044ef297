#include "rondo/nn/shard.h"

#include <torch/types.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

std::int64_t product(std::span<const std::int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
}

// Appends elements [range.begin, range.end) of the sub-box whose first `fixed.size()` indices are given, as
// boxes.
void add_boxes(const std::vector<std::int64_t>& sizes, std::vector<std::int64_t> fixed, FlatRange range,
               std::vector<Box>& boxes) {
  if (range.size() <= 0) return;
  const std::size_t dimension = fixed.size();
  const auto add_rows = [&](std::int64_t first, std::int64_t count) {
    Box box{fixed, std::vector<std::int64_t>(dimension, 1)};
    if (dimension < sizes.size()) {
      box.offsets.push_back(first);
      box.sizes.push_back(count);
      box.offsets.resize(sizes.size(), 0);
      box.sizes.insert(box.sizes.end(), sizes.begin() + static_cast<std::ptrdiff_t>(dimension) + 1,
                       sizes.end());
    }
    boxes.push_back(std::move(box));
  };
  if (dimension == sizes.size()) return add_rows(0, 1);
  const std::int64_t row = product(std::span(sizes).subspan(dimension + 1));
  std::int64_t first = range.begin / row;
  const std::int64_t last = range.end / row;  // row in which the range ends, if it ends inside a row
  const auto add_part = [&](std::int64_t index, FlatRange part) {
    fixed.push_back(index);
    add_boxes(sizes, fixed, part, boxes);
    fixed.pop_back();
  };
  if (range.begin % row != 0) {
    add_part(first, {range.begin % row, std::min(row, range.end - first * row)});
    ++first;
  }
  if (first < last) add_rows(first, last - first);
  if (first <= last) add_part(last, {0, range.end % row});
}

}  // namespace

std::int64_t Box::elements() const { return product(sizes); }

std::int64_t Shard::elements() const { return within ? within->size() : blocks * product(sizes); }

std::vector<std::int64_t> Shard::local_sizes() const {
  if (within) {
    std::vector<std::int64_t> flat(std::max<std::size_t>(1, global_sizes.size()), 1);
    flat.front() = within->size();
    return flat;
  }
  std::vector<std::int64_t> result = sizes;
  if (blocks > 1) result.front() *= blocks;
  return result;
}

Shard full_shard(std::string name, const at::Tensor& tensor, int replica) {
  const std::vector<std::int64_t> sizes = tensor.sizes().vec();
  return {.name = std::move(name),
          .global_sizes = sizes,
          .offsets = std::vector<std::int64_t>(sizes.size(), 0),
          .sizes = sizes,
          .local = tensor,
          .replica = replica};
}

Shard flat_shard(std::string name, std::vector<std::int64_t> global_sizes, std::int64_t begin,
                 const at::Tensor& local, int replica) {
  Shard shard{.name = std::move(name),
              .global_sizes = std::move(global_sizes),
              .within = FlatRange{begin, begin + local.numel()},
              .local = local,
              .replica = replica};
  shard.offsets.resize(shard.global_sizes.size(), 0);
  shard.sizes = shard.global_sizes;
  return shard;
}

bool same_address(const Shard& a, const Shard& b) {
  return a.global_sizes == b.global_sizes && a.offsets == b.offsets && a.sizes == b.sizes &&
         a.within == b.within && a.blocks == b.blocks;
}

std::string describe_address(const Shard& shard) {
  const std::string full = str("[", join(shard.global_sizes, ", "), "]");
  const bool all = shard.sizes == shard.global_sizes &&
                   std::all_of(shard.offsets.begin(), shard.offsets.end(), [](auto o) { return o == 0; });
  const std::string whole = shard.blocks > 1 ? str("each of ", shard.blocks, " blocks of ", full) : full;
  const std::string box =
      all ? full : str("[", join(shard.sizes, ", "), "] at [", join(shard.offsets, ", "), "] of ", whole);
  return shard.within ? str("elements [", shard.within->begin, ", ", shard.within->end, ") of ", box) : box;
}

std::string fault_of(const Shard& shard) {
  const std::size_t dimensions = shard.global_sizes.size();
  bool inside = shard.offsets.size() == dimensions && shard.sizes.size() == dimensions &&
                (shard.blocks == 1 ||
                 (shard.blocks > 1 && dimensions > 0 && shard.global_sizes.front() % shard.blocks == 0));
  for (std::size_t d = 0; inside && d < dimensions; ++d) {
    const std::int64_t size = shard.global_sizes[d] / (d == 0 ? shard.blocks : 1);
    inside = shard.offsets[d] >= 0 && shard.sizes[d] >= 0 && shard.offsets[d] <= size &&
             shard.sizes[d] <= size - shard.offsets[d];
  }
  if (!inside) return str("'", shard.name, "', ", describe_address(shard), ", is not inside the full tensor");
  if (shard.within && (shard.within->begin < 0 || shard.within->size() < 0 ||
                       shard.within->end > shard.blocks * product(shard.sizes)))
    return str("'", shard.name, "', ", describe_address(shard), ", is not inside its box");
  if (!shard.local.defined()) return {};
  const bool is_flat = shard.within && shard.local.dim() == 1 && shard.local.numel() == shard.within->size();
  if (is_flat || shard.local.sizes().vec() == shard.local_sizes()) return {};
  return str("'", shard.name, "', ", describe_address(shard), ", has a local tensor of shape [",
             join(shard.local.sizes(), ", "), "]");
}

std::vector<Box> boxes_of(const Shard& shard) {
  std::vector<Box> boxes;
  if (shard.elements() == 0) return boxes;
  // Adds blocks as a leading dimension, which is folded into the first one below.
  std::vector<std::int64_t> sizes = shard.sizes;
  const bool folded = shard.blocks > 1;
  if (folded) sizes.insert(sizes.begin(), shard.blocks);
  add_boxes(sizes, {}, shard.within.value_or(FlatRange{0, shard.elements()}), boxes);
  std::vector<Box> result;
  for (Box& box : boxes) {
    const std::int64_t first = folded ? box.offsets.front() : 0;
    const std::int64_t count = folded ? box.sizes.front() : 1;
    if (folded) {
      box.offsets.erase(box.offsets.begin());
      box.sizes.erase(box.sizes.begin());
    }
    for (std::size_t d = 0; d < box.offsets.size(); ++d) box.offsets[d] += shard.offsets[d];
    for (std::int64_t block = first; block < first + count; ++block) {
      result.push_back(box);
      if (folded) result.back().offsets.front() += block * (shard.global_sizes.front() / shard.blocks);
    }
  }
  return result;
}

at::Tensor view_of(const Shard& shard, const Box& box) {
  std::int64_t begin = 0;
  for (const Box& piece : boxes_of(shard)) {
    if (overlap(piece, box) == box) {
      at::Tensor view = shard.local;
      if (shard.within) view = view.narrow(0, begin, piece.elements()).view(piece.sizes);
      if (!shard.within && shard.blocks > 1)
        view = view.narrow(0, begin / piece.elements() * piece.sizes.front(), piece.sizes.front());
      for (std::size_t d = 0; d < box.sizes.size(); ++d) {
        view = view.narrow(static_cast<std::int64_t>(d), box.offsets[d] - piece.offsets[d], box.sizes[d]);
      }
      return view;
    }
    begin += piece.elements();
  }
  throw UsageError(str("the box of [", join(box.sizes, ", "), "] at [", join(box.offsets, ", "),
                       "] is not in '", shard.name, "', ", describe_address(shard)));
}

std::optional<Box> overlap(const Box& a, const Box& b) {
  Box both = a;
  for (std::size_t d = 0; d < a.sizes.size(); ++d) {
    both.offsets[d] = std::max(a.offsets[d], b.offsets[d]);
    both.sizes[d] = std::min(a.offsets[d] + a.sizes[d], b.offsets[d] + b.sizes[d]) - both.offsets[d];
    if (both.sizes[d] <= 0) return {};
  }
  return both;
}

std::vector<Box> without(const Box& box, const Box& hole) {
  std::vector<Box> rest;
  Box left = box;  // part outside the hole in later dimensions only
  for (std::size_t d = 0; d < box.sizes.size(); ++d) {
    const std::int64_t end = box.offsets[d] + box.sizes[d];
    const std::int64_t hole_end = hole.offsets[d] + hole.sizes[d];
    const auto add = [&](std::int64_t from, std::int64_t to) {
      if (from >= to) return;
      rest.push_back(left);
      rest.back().offsets[d] = from;
      rest.back().sizes[d] = to - from;
    };
    add(box.offsets[d], hole.offsets[d]);
    add(hole_end, end);
    left.offsets[d] = hole.offsets[d];
    left.sizes[d] = hole.sizes[d];
  }
  return rest;
}

std::vector<Box> beside(const std::vector<Box>& boxes, const Shard& shard,
                        const std::function<void(const Box&)>& found) {
  std::vector<Box> left = boxes;
  for (const Box& piece : boxes_of(shard)) {
    std::vector<Box> rest;
    for (const Box& box : left) {
      const std::optional<Box> common = overlap(box, piece);
      if (!common) {
        rest.push_back(box);
        continue;
      }
      if (found) found(*common);
      for (Box& part : without(box, *common)) rest.push_back(std::move(part));
    }
    left = std::move(rest);
  }
  return left;
}

at::Tensor cut(const at::Tensor& full, const Shard& address) {
  std::vector<at::Tensor> parts;
  for (std::int64_t block = 0; block < address.blocks; ++block) {
    at::Tensor part = full;
    if (address.blocks > 1) part = part.chunk(address.blocks)[static_cast<std::size_t>(block)];
    for (std::size_t d = 0; d < address.sizes.size(); ++d)
      part = part.narrow(static_cast<std::int64_t>(d), address.offsets[d], address.sizes[d]);
    parts.push_back(std::move(part));
  }
  at::Tensor part = parts.size() == 1 ? parts.front() : at::cat(parts);
  if (!address.within) return part;
  return part.reshape({-1})
      .narrow(0, address.within->begin, address.within->size())
      .view(address.local_sizes());
}

namespace {

constexpr const char* kWhere = "the address";

}  // namespace

nlohmann::json address_to_json(const Shard& shard) {
  nlohmann::json address{
      {"name", shard.name}, {"full", shard.global_sizes}, {"offsets", shard.offsets}, {"sizes", shard.sizes}};
  if (shard.within) address["within"] = {shard.within->begin, shard.within->end};
  if (shard.blocks != 1) address["blocks"] = shard.blocks;
  return address;
}

Shard address_from_json(const nlohmann::json& address) {
  const auto sizes = [&](const char* key) {
    std::vector<std::int64_t> result;
    for (const nlohmann::json& size : json_list(json_member(address, key, kWhere), json_place(kWhere, key)))
      result.push_back(json_integer(size, json_place(kWhere, key)));
    return result;
  };
  Shard shard{.name = json_text(json_member(address, "name", kWhere), json_place(kWhere, "name")),
              .global_sizes = sizes("full"),
              .offsets = sizes("offsets"),
              .sizes = sizes("sizes")};
  if (const auto blocks = address.find("blocks"); blocks != address.end())
    shard.blocks = json_integer(*blocks, json_place(kWhere, "blocks"));
  if (!address.contains("within")) return shard;
  const std::vector<std::int64_t> within = sizes("within");
  if (within.size() != 2)
    throw DataError(str(json_place(kWhere, "within"), " is not a beginning and an end"));
  shard.within = FlatRange{within[0], within[1]};
  return shard;
}

}  // namespace rondo
