#pragma once

#include <cstddef>
#include <cstring>

#include "rondo/collective/request.h"
#include "rondo/collective/shared_memory/layout.h"

// The description of an operation that its ranks compare. Inline, because small operations are as short as a
// few calls.
namespace rondo::shared_memory {

// Returns the description that a rank publishes of its request; `arena_offset` is the offset of its
// registered input, or kNotRegistered.
inline OperationHeader make_header(const CollectiveRequest& request, std::uint64_t arena_offset) {
  return {.kind = request.kind,
          .type = request.type,
          .reduction = request.reduction,
          .weighted = request.weighted,
          .by_schedule = request.by_schedule,
          .call = static_cast<std::uint8_t>(static_cast<std::uint8_t>(request.call) & 0x3F),
          .root = request.root,
          .elements = request.elements,
          .arena_offset = arena_offset,
          .weight = request.weight};
}

// Returns the call of the library that contains the operation.
inline CollectiveCall call_of(const OperationHeader& header) {
  return static_cast<CollectiveCall>(header.call);
}

// Returns the request that a rank has described, without its buffers.
inline CollectiveRequest request_of(const OperationHeader& header) {
  CollectiveRequest request;
  request.kind = header.kind;
  request.type = header.type;
  request.reduction = header.reduction;
  request.root = header.root;
  request.elements = header.elements;
  request.weighted = header.weighted != 0;
  request.call = call_of(header);
  return request;
}

// Returns whether two ranks' descriptions are of one collective.
inline bool agree(const OperationHeader& a, const OperationHeader& b) {
  // The compared part has no padding and is nearly always equal.
  constexpr std::size_t kComparedBytes = offsetof(OperationHeader, arena_offset);
  static_assert(kComparedBytes == 4 + sizeof(OperationHeader::root) + sizeof(OperationHeader::elements));
  if (std::memcmp(&a, &b, kComparedBytes) == 0) return true;
  return a.kind == b.kind && a.type == b.type && a.reduction == b.reduction && a.weighted == b.weighted &&
         a.by_schedule == b.by_schedule && a.root == b.root && a.elements == b.elements &&
         may_be_one(call_of(a), call_of(b));
}

// Publishes the description of operation `sequence` in this rank's slot; a payload has been written before.
inline void publish_header(Slot& slot, const OperationHeader& header, std::uint64_t sequence) {
  slot.header = header;
  slot.sequence.store(sequence + 1, std::memory_order_release);
}

}  // namespace rondo::shared_memory
