#include "rondo/strategy/shard_directory.h"

#include <torch/types.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/shard.h"

namespace rondo {
namespace {

// Alignment in bytes of shards in a byte buffer; suitable for any dtype.
constexpr std::int64_t kShardAlignment = 16;
// Limit of bytes in flight, unless one shard is larger.
constexpr std::int64_t kRoundBytes = std::int64_t{64} << 20;

nlohmann::json to_json(const Shard& shard) {
  nlohmann::json result = address_to_json(shard);
  result["replica"] = shard.replica;
  result["dtype"] = static_cast<int>(shard.local.scalar_type());
  if (std::string fault = fault_of(shard); !fault.empty()) result["fault"] = std::move(fault);
  return result;
}

Shard parse_entry(const nlohmann::json& entry) {
  Shard shard = address_from_json(entry);
  shard.replica = entry.at("replica");
  return shard;
}

// Returns the lists of all ranks.
std::vector<nlohmann::json> tell_all(std::span<const Shard> own, const Group& group) {
  nlohmann::json list = nlohmann::json::array();
  for (const Shard& shard : own) list.push_back(to_json(shard));
  if (!group.member() || group.size() == 1) return {std::move(list)};
  return all_gather_object(list, group);
}

std::string shape_text(const Shard& shard) { return str("[", join(shard.global_sizes, ", "), "]"); }

}  // namespace

std::int64_t ShardDirectory::Transfer::bytes() const {
  const std::int64_t bytes = box.elements() * static_cast<std::int64_t>(c10::elementSize(from->dtype));
  return (bytes + kShardAlignment - 1) / kShardAlignment * kShardAlignment;
}

ShardDirectory::ShardDirectory(std::vector<Shard> held, Group group)
    : held_(std::move(held)), group_(std::move(group)) {
  std::vector<std::string> faults;
  int from = 0;
  for (const nlohmann::json& list : tell_all(held_, group_)) {
    for (std::size_t number = 0; number < list.size(); ++number) {
      Entry entry{.address = parse_entry(list[number]),
                  .dtype = static_cast<at::ScalarType>(list[number].at("dtype").get<int>()),
                  .rank = from,
                  .number = number};
      std::vector<Entry>& others = entries_[entry.address.name];
      if (others.empty()) names_.push_back(entry.address.name);
      entry.tensor = others.empty() ? names_.size() - 1 : others.front().tensor;
      std::string fault = list[number].value("fault", "");
      if (fault.empty() && !others.empty() &&
          others.front().address.global_sizes != entry.address.global_sizes)
        fault = str("'", entry.address.name, "' is of shape ", shape_text(others.front().address),
                    " and of shape ", shape_text(entry.address));
      if (!fault.empty()) faults.push_back(str("rank ", from, ": ", fault));
      others.push_back(std::move(entry));
    }
    ++from;
  }
  if (!faults.empty()) throw UsageError(str("invalid shards: ", join(faults, "; ")));
  for (auto& [name, entries] : entries_) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.address.replica < b.address.replica; });
  }
}

const ShardDirectory::Entry& ShardDirectory::entry(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw UsageError(str("no rank has a shard of '", name, "'"));
  return found->second.front();
}

std::vector<Shard> ShardDirectory::held_only_by(const std::vector<int>& ranks) const {
  std::vector<Shard> result;
  const auto listed = [&](const Entry& entry) {
    return std::find(ranks.begin(), ranks.end(), entry.rank) != ranks.end();
  };
  for (const std::string& name : names_) {
    const std::vector<Entry>& entries = entries_.at(name);
    const std::size_t first = result.size();
    for (const Entry& entry : entries) {
      std::vector<Box> left = boxes_of(entry.address);
      for (const Entry& other : entries) {
        if (!listed(other)) left = beside(left, other.address);
      }
      const bool known = std::any_of(result.begin() + static_cast<std::ptrdiff_t>(first), result.end(),
                                     [&](const Shard& shard) { return same_address(shard, entry.address); });
      if (listed(entry) && !left.empty() && !known) result.push_back(entry.address);
    }
  }
  return result;
}

std::vector<std::size_t> ShardDirectory::to_write() const {
  std::vector<std::size_t> result;
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(size()), 0);
  for (const std::string& name : names_) {
    std::vector<const Entry*> left;
    for (const Entry& entry : entries_.at(name)) left.push_back(&entry);
    bool is_written = false;
    while (!left.empty()) {
      const Shard& address = left.front()->address;
      const Entry* writer = nullptr;
      for (const Entry* entry : left) {
        if (!same_address(entry->address, address)) continue;
        const bool has_less = writer == nullptr || bytes[static_cast<std::size_t>(entry->rank)] <
                                                       bytes[static_cast<std::size_t>(writer->rank)];
        if (has_less) writer = entry;
      }
      std::erase_if(left, [&](const Entry* entry) { return same_address(entry->address, address); });
      // An empty tensor is written once; an empty part of a larger tensor is not.
      const bool has_elements = writer->address.elements() > 0;
      if (!has_elements && (is_written || !left.empty())) continue;
      is_written = true;
      bytes[static_cast<std::size_t>(writer->rank)] +=
          writer->address.elements() * static_cast<std::int64_t>(c10::elementSize(writer->dtype));
      if (writer->rank == rank()) result.push_back(writer->number);
    }
  }
  return result;
}

// Intersects the remaining wanted boxes with one held shard after the other.
void ShardDirectory::find_transfers(const Shard& wanted, int rank, std::size_t number,
                                    Transfers& transfers) const {
  const auto found = entries_.find(wanted.name);
  if (found == entries_.end()) {
    transfers.missing.push_back(str("'", wanted.name, "' is missing"));
    return;
  }
  const std::vector<Entry>& entries = found->second;
  if (entries.front().address.global_sizes != wanted.global_sizes) {
    transfers.missing.push_back(
        str("'", wanted.name, "' is ", shape_text(entries.front().address), " and not ", shape_text(wanted)));
    return;
  }
  std::vector<Box> left = boxes_of(wanted);
  for (const bool own : {true, false}) {
    for (const Entry& entry : entries) {
      if (left.empty()) return;
      if ((entry.rank == rank) != own) continue;
      left = beside(left, entry.address, [&](const Box& common) {
        transfers.all.push_back({&entry, rank, number, common});
      });
    }
  }
  if (left.empty()) return;
  std::int64_t elements = 0;
  for (const Box& box : left) elements += box.elements();
  const auto first = std::min_element(left.begin(), left.end(),
                                      [](const Box& a, const Box& b) { return a.offsets < b.offsets; });
  transfers.missing.push_back(str("no rank has ", elements, " elements of '", wanted.name, "' ",
                                  shape_text(wanted), ", the first at [", join(first->offsets, ", "), "]"));
}

std::vector<std::string> ShardDirectory::fetch(std::span<Shard> wanted, bool exact) const {
  Transfers transfers;
  std::set<std::string> names;
  int rank = 0;
  for (const nlohmann::json& list : tell_all(wanted, group_)) {
    for (std::size_t number = 0; number < list.size(); ++number) {
      const Shard address = parse_entry(list[number]);
      names.insert(address.name);
      if (list[number].contains("fault")) {
        transfers.missing.push_back(list[number].at("fault"));
      } else {
        find_transfers(address, rank, number, transfers);
      }
    }
    ++rank;
  }
  for (const std::string& name : names_) {
    if (exact && !names.contains(name)) transfers.missing.push_back(str("no rank wants '", name, "'"));
  }
  // Reports equal faults of several ranks once.
  std::vector<std::string> missing;
  for (std::string& phrase : transfers.missing) {
    if (std::find(missing.begin(), missing.end(), phrase) == missing.end())
      missing.push_back(std::move(phrase));
  }
  if (missing.empty()) move(transfers.all, wanted);
  return missing;
}

at::Tensor ShardDirectory::full(const std::string& name, std::optional<int> root) const {
  const Entry& any = entry(name);
  Shard address{.name = name,
                .global_sizes = any.address.global_sizes,
                .offsets = std::vector<std::int64_t>(any.address.global_sizes.size(), 0),
                .sizes = any.address.global_sizes};
  Transfers transfers;
  for (int to = 0; to < size(); ++to) {
    if (!root || *root == to) find_transfers(address, to, 0, transfers);
  }
  if (!transfers.missing.empty()) throw UsageError(transfers.missing.front());
  const bool here = !root || *root == rank();
  if (here) {
    for (const Shard& shard : held_) {
      if (shard.name == name && same_address(shard, address)) address.local = shard.local.detach();
    }
    if (!address.local.defined()) {
      const auto own =
          std::find_if(held_.begin(), held_.end(), [&](const Shard& shard) { return shard.name == name; });
      const c10::Device device = own != held_.end() ? own->local.device() : c10::Device(c10::kCPU);
      address.local = at::empty(address.sizes, at::TensorOptions().dtype(any.dtype).device(device));
    } else {
      std::erase_if(transfers.all, [&](const Transfer& transfer) { return transfer.to == rank(); });
    }
  }
  move(transfers.all, {&address, 1});
  return address.local;
}

void ShardDirectory::move(const std::vector<Transfer>& transfers, std::span<Shard> wanted) const {
  const at::NoGradGuard no_grad;
  // Local copies need no message.
  std::vector<Transfer> far;
  for (const Transfer& transfer : transfers) {
    if (transfer.from->rank != transfer.to) {
      far.push_back(transfer);
    } else if (transfer.to == rank()) {
      view_of(wanted[transfer.wanted], transfer.box)
          .copy_(view_of(held_[transfer.from->number], transfer.box));
    }
  }
  // Sorts by tensor, so that ranks that want the same tensor get it in one round.
  std::stable_sort(far.begin(), far.end(),
                   [](const Transfer& a, const Transfer& b) { return a.from->tensor < b.from->tensor; });
  for (std::size_t begin = 0; begin < far.size();) {
    std::size_t end = begin;
    for (std::int64_t bytes = 0; end < far.size() && (end == begin || bytes < kRoundBytes); ++end)
      bytes += far[end].bytes();
    move_round(std::span(far).subspan(begin, end - begin), wanted);
    begin = end;
  }
}

void ShardDirectory::move_round(std::span<const Transfer> round, std::span<Shard> wanted) const {
  const auto ranks = static_cast<std::size_t>(size());
  std::vector<std::int64_t> send(ranks, 0);
  std::vector<std::int64_t> receive(ranks, 0);
  for (const Transfer& transfer : round) {
    if (transfer.from->rank == rank()) send[static_cast<std::size_t>(transfer.to)] += transfer.bytes();
    if (transfer.to == rank()) receive[static_cast<std::size_t>(transfer.from->rank)] += transfer.bytes();
  }
  const auto begins = [](const std::vector<std::int64_t>& bytes) {
    std::vector<std::int64_t> result(bytes.size(), 0);
    for (std::size_t i = 1; i < bytes.size(); ++i) result[i] = result[i - 1] + bytes[i - 1];
    return result;
  };
  const auto total = [](const std::vector<std::int64_t>& bytes) {
    return std::accumulate(bytes.begin(), bytes.end(), std::int64_t{0});
  };
  // Returns the next transfer between two ranks in a buffer, as a tensor with the shape and dtype of its box.
  const auto next = [](const at::Tensor& buffer, std::int64_t& begin, const Transfer& transfer) {
    const std::int64_t bytes =
        transfer.box.elements() * static_cast<std::int64_t>(c10::elementSize(transfer.from->dtype));
    at::Tensor place = buffer.narrow(0, begin, bytes).view(transfer.from->dtype).view(transfer.box.sizes);
    begin += transfer.bytes();
    return place;
  };
  const at::TensorOptions options = at::TensorOptions().dtype(at::kByte);
  const c10::DeviceType device = group_.traits().control_device();
  at::Tensor input = at::zeros({total(send)}, options);
  std::vector<std::int64_t> place = begins(send);
  for (const Transfer& transfer : round) {
    if (transfer.from->rank != rank()) continue;
    next(input, place[static_cast<std::size_t>(transfer.to)], transfer)
        .copy_(view_of(held_[transfer.from->number], transfer.box));
  }
  input = input.to(device);
  at::Tensor output = at::empty({total(receive)}, options.device(device));
  place = begins(receive);
  all_to_all_single(output, input, receive, send, group_);
  output = output.to(at::kCPU);
  for (const Transfer& transfer : round) {
    if (transfer.to != rank()) continue;
    view_of(wanted[transfer.wanted], transfer.box)
        .copy_(next(output, place[static_cast<std::size_t>(transfer.from->rank)], transfer));
  }
}

}  // namespace rondo
