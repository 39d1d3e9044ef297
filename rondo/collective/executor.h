#pragma once

#include <span>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/channel/channel.h"
#include "rondo/collective/dtype.h"
#include "rondo/collective/schedule.h"

namespace rondo::collective {

// An executor of one rank's schedule, for any number of runs; keeps the scratch memory. One thread at a time.
class Executor {
 public:
  // Throws UsageError if the reduction is not defined on the type, or if the schedule is for another element
  // size.
  Executor(Schedule schedule, DType type, Reduction reduction);
  // The executor passes out pointers to itself.
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Runs the schedule. Collective over the channel: all ranks run their schedule of the same collective.
  // `data` has schedule.bytes bytes, aligned for the type. ScheduleRequest describes its contents before and
  // after. For Reduction::average sums are divided by the number of ranks: before the only rounding if the
  // schedule adds in rank order, else after the last addition, with one more rounding.
  //
  // Throws the errors of Channel::exchange; `data` is then unspecified and the channel broken. Ranks that run
  // different collectives detect it by the messages' tags (MismatchError).
  void run(Channel& channel, std::span<std::byte> data, const Wait& wait);

  // The schedule of this executor.
  const Schedule& schedule() const { return schedule_; }

 private:
  std::byte* address(const Range& range) const;
  void take(const Step& step, std::span<const std::byte> piece, std::size_t offset) const;
  void run_round(Channel& channel, std::size_t begin, std::size_t end, const Wait& wait);
  void run_local(const Step& step) const;
  // Reduction of steps that combine only some of the ranks.
  Reduction addition() const;
  void combine(std::span<const std::byte* const> sources, std::byte* target, std::size_t bytes,
               Reduction reduction) const;
  void average() const;

  Schedule schedule_;
  DType type_;
  Reduction reduction_;
  Tag tag_;  // without the round
  std::vector<std::byte> scratch_;
  std::byte* data_ = nullptr;  // during run()
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

// Runs a schedule once.
void execute(const Schedule& schedule, Channel& channel, std::span<std::byte> data, DType type,
             Reduction reduction, const Wait& wait);

}  // namespace rondo::collective
