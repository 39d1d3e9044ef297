#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rondo/parallel/schedule/block.h"

namespace rondo {

// Decides which of the blocks that wait goes next. A value is used by one thread at a time.
class SchedulePolicy {
 public:
  virtual ~SchedulePolicy() = default;
  virtual std::string name() const = 0;
  // Position in `waiting` (in the order in which they were queued, never empty) of the block to start.
  // Follows from the calls made so far alone.
  virtual std::size_t next(std::span<const CommunicationBlock* const> waiting) = 0;
  // How many of `waiting` blocks may be started now that one was queued; the others stay until one of them is
  // waited for or another is queued.
  virtual std::size_t release(std::size_t waiting) { return waiting; }
  // The computation has come to a slot of the plan.
  virtual void reach(std::int64_t /*slot*/) {}
  // Whether a block may go now, though nobody waits for it yet.
  virtual bool allows(const CommunicationBlock&) const { return true; }
};

struct PolicyOptions {
  // fifo: in the order of queueing. priority: what is needed first. random: any legal order, drawn anew from
  // `seed` for each block. plan: in the order of a plan, each not before its slot.
  std::string name = "priority";
  std::uint64_t seed = 0;
};

// Throws UsageError for an unknown name.
std::unique_ptr<SchedulePolicy> make_policy(const PolicyOptions& options);

}  // namespace rondo
