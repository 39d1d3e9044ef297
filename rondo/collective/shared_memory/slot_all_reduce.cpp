#include "rondo/collective/shared_memory/slot_all_reduce.h"

#include <cstddef>
#include <cstring>

#include "rondo/channel/waiting.h"
#include "rondo/collective/reduction.h"
#include "rondo/collective/shared_memory/address_per_rank.h"
#include "rondo/collective/shared_memory/operation_header.h"

namespace rondo::shared_memory {

bool is_slot_all_reduce(const CollectiveRequest& request) {
  return request.kind == OperationKind::all_reduce && !request.weighted && !request.by_schedule &&
         request.bytes() <= kInlineBytes;
}

SlotAllReduce::SlotAllReduce(const CollectiveRequest& request, std::uint64_t sequence, const Peers& peers)
    : request_(request), sequence_(sequence), peers_(peers) {
  Slot& own = peers_.own().slots[sequence_ % kSlots];
  if (request_.elements > 0) std::memcpy(own.payload, request_.input.base, request_.bytes());
  publish_header(own, make_header(request_, kNotRegistered), sequence_);
}

const Slot& SlotAllReduce::slot_of(int rank) const { return peers_.segment(rank).slots[sequence_ % kSlots]; }

int SlotAllReduce::next_missing(int rank) const {
  while (rank < peers_.size() && slot_of(rank).sequence.load(std::memory_order_acquire) == sequence_ + 1)
    ++rank;
  return rank;
}

bool SlotAllReduce::all_agree() const {
  const OperationHeader& own = slot_of(peers_.rank()).header;
  for (int r = 0; r < peers_.size(); ++r) {
    if (!agree(own, slot_of(r).header)) return false;
  }
  return true;
}

bool SlotAllReduce::finish(std::uint64_t ticket, int spins) const {
  // A peer that published before the first look may be about to sleep, so it is notified, with a fence. One
  // that publishes later looks at this rank's slot for milliseconds (kYieldTime) before it sleeps, and sleeps
  // for at most kSleepTime: it needs no notification.
  int missing = next_missing(0);
  const bool waits = missing < peers_.size();
  if (waits) {
    bool any_arrived = false;
    for (int r = 0; r < peers_.size(); ++r) {
      any_arrived |=
          r != peers_.rank() && slot_of(r).sequence.load(std::memory_order_relaxed) == sequence_ + 1;
    }
    if (any_arrived) peers_.notify_peers();
  }
  const bool two_lines = offsetof(Slot, payload) + request_.bytes() > kCacheLine;
  for (int i = 0; missing < peers_.size(); ++i) {
    if (i >= spins) {
      peers_.notify_peers();
      return false;
    }
    // Requests the second line again and again, so that it comes together with the first one.
    if (two_lines) __builtin_prefetch(reinterpret_cast<const std::byte*>(&slot_of(missing)) + kCacheLine);
    if (i >= kImmediateSpins) relax_processor();
    missing = next_missing(missing);
  }
  if (!all_agree()) {
    peers_.notify_peers();
    return false;
  }
  AddressPerRank<const std::byte*> sources(peers_.size());
  for (int r = 0; r < peers_.size(); ++r) sources[static_cast<std::size_t>(r)] = slot_of(r).payload;
  reduce(
      {request_.type, request_.reduction, sources.span(), {&request_.output.base, 1}, request_.elements, {}});
  peers_.own().reduced.store(ticket, std::memory_order_release);
  peers_.own().consumed.store(ticket, std::memory_order_release);
  if (!waits) peers_.notify_peers();
  return true;
}

}  // namespace rondo::shared_memory
