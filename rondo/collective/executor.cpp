#include "rondo/collective/executor.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/reduction.h"

namespace rondo::collective {
namespace {

// Returns a tag with 15 bits of a hash (FNV-1a) of the properties that ranks must agree on, above 16 bits for
// the round.
Tag tag_of(const Schedule& schedule, DType type, Reduction reduction) {
  const std::string text =
      str(rondo::name(schedule.operation), " ", schedule.algorithm, " ", schedule.world, " ", schedule.root,
          " ", schedule.bytes.count, " ", schedule.rounds, " ", rondo::name(type), " ",
          reduces(schedule.operation) ? rondo::name(reduction) : "");
  std::uint32_t hash = 2166136261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return static_cast<Tag>(((hash >> 16) ^ hash) & 0x7fffU) << 16;
}

}  // namespace

Executor::Executor(Schedule schedule, DType type, Reduction reduction)
    : schedule_(std::move(schedule)),
      type_(type),
      reduction_(reduction),
      tag_(tag_of(schedule_, type, reduction)) {
  if (reduces(schedule_.operation) && !supports(type, reduction)) {
    throw UsageError(str("reduction ", rondo::name(reduction), " is not defined on ", rondo::name(type)));
  }
  if (element_bytes(type) != schedule_.element_bytes) {
    throw UsageError(str("the schedule is for elements of ", schedule_.element_bytes, " bytes, ",
                         rondo::name(type), " has ", element_bytes(type)));
  }
  scratch_.resize(schedule_.scratch.count);
}

std::byte* Executor::address(const Range& range) const {
  std::byte* base = range.buffer == Buffer::data ? data_ : const_cast<std::byte*>(scratch_.data());
  return base + range.offset;
}

void Executor::run(Channel& channel, std::span<std::byte> data, const Wait& wait) {
  if (channel.rank() != schedule_.rank || channel.size() != schedule_.world) {
    throw UsageError(str("the schedule is for rank ", schedule_.rank, " of ", schedule_.world,
                         ", the channel for rank ", channel.rank(), " of ", channel.size()));
  }
  if (data.size() != schedule_.bytes.count) {
    throw UsageError(
        str("the schedule is for ", schedule_.bytes.count, " bytes, the buffer has ", data.size()));
  }
  data_ = data.data();
  for (std::size_t begin = 0; begin < schedule_.steps.size();) {
    std::size_t end = begin;
    while (end < schedule_.steps.size() && schedule_.steps[end].round == schedule_.steps[begin].round) ++end;
    run_round(channel, begin, end, wait);
    begin = end;
  }
  if (reduction_ == Reduction::average && reduces(schedule_.operation) && !schedule_.in_rank_order) average();
}

void Executor::run_round(Channel& channel, std::size_t begin, std::size_t end, const Wait& wait) {
  outgoing_.clear();
  incoming_.clear();
  const Tag tag = tag_ | (schedule_.steps[begin].round & 0xffff);
  for (std::size_t i = begin; i < end; ++i) {
    const Step& step = schedule_.steps[i];
    if (is_local(step)) continue;
    if (step.kind == StepKind::send) {
      outgoing_.push_back({step.peer, tag, {address(step.range), step.range.bytes}});
    } else {
      // Two pointers: small enough for std::function to store without an allocation.
      incoming_.push_back({step.peer, tag, step.range.bytes,
                           [this, at = &step](std::span<const std::byte> piece, std::size_t offset) {
                             take(*at, piece, offset);
                           }});
    }
  }
  if (!outgoing_.empty() || !incoming_.empty()) channel.exchange(outgoing_, incoming_, wait);
  for (std::size_t i = begin; i < end; ++i) {
    if (is_local(schedule_.steps[i])) run_local(schedule_.steps[i]);
  }
}

void Executor::take(const Step& step, std::span<const std::byte> piece, std::size_t offset) const {
  std::byte* target = address(step.range) + offset;
  if (step.kind == StepKind::recv) {
    std::memcpy(target, piece.data(), piece.size());
    return;
  }
  const std::array<const std::byte*, 2> sources{target, piece.data()};
  combine(sources, target, piece.size(), addition());
}

void Executor::run_local(const Step& step) const {
  std::byte* target = address(step.range);
  if (step.kind == StepKind::copy) {
    std::memmove(target, address(step.sources.front()), step.range.bytes);
    return;
  }
  std::vector<const std::byte*> sources;
  for (const Range& source : step.sources) sources.push_back(address(source));
  // A step that adds all ranks' values also divides, before the only rounding.
  combine(sources, target, step.range.bytes, schedule_.in_rank_order ? reduction_ : addition());
}

Reduction Executor::addition() const {
  return reduction_ == Reduction::average ? Reduction::sum : reduction_;
}

void Executor::combine(std::span<const std::byte* const> sources, std::byte* target, std::size_t bytes,
                       Reduction reduction) const {
  ReductionTask task;
  task.type = type_;
  task.reduction = reduction;
  task.sources = sources;
  task.destinations = {&target, 1};
  task.elements = bytes / schedule_.element_bytes;
  reduce(task);
}

// Divides this rank's result by the world size, as a weighted average of the result and zeros.
void Executor::average() const {
  alignas(64) static constexpr std::array<std::byte, 4096> kZeros{};
  if (schedule_.world == 1 ||
      (schedule_.operation == OperationKind::reduce && schedule_.rank != schedule_.root))
    return;
  Range result{Buffer::data, 0, schedule_.bytes.count};
  if (schedule_.operation == OperationKind::reduce_scatter) {
    result = piece_of(result, schedule_.element_bytes, schedule_.world, schedule_.rank);
  }
  const std::array<double, 2> weights{1.0, schedule_.world - 1.0};
  for (std::uint64_t begin = 0; begin < result.bytes; begin += kZeros.size()) {
    std::byte* target = data_ + result.offset + begin;
    const std::array<const std::byte*, 2> sources{target, kZeros.data()};
    ReductionTask task;
    task.type = type_;
    task.reduction = Reduction::average;
    task.sources = sources;
    task.destinations = {&target, 1};
    task.elements = std::min<std::uint64_t>(kZeros.size(), result.bytes - begin) / schedule_.element_bytes;
    task.weights = weights;
    reduce(task);
  }
}

void execute(const Schedule& schedule, Channel& channel, std::span<std::byte> data, DType type,
             Reduction reduction, const Wait& wait) {
  Executor(schedule, type, reduction).run(channel, data, wait);
}

}  // namespace rondo::collective
