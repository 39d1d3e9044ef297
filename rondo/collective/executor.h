#pragma once

#include <span>
#include <vector>

#include "rondo/base/cancel.h"
#include "rondo/channel/channel.h"
#include "rondo/collective/dtype.h"
#include "rondo/collective/plan.h"

namespace rondo::collective {

// Runs one rank's plan, any number of times; keeps the scratch memory in between. One thread at a time.
class Executor {
 public:
  // Throws UsageError when the reduction is not defined on the type, or the plan is not for elements of its
  // size.
  Executor(Plan plan, DType type, Reduction reduction);
  // The executor lends out pointers to itself.
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Collective over the channel: all ranks run their plan of the same collective. `data` has plan.bytes
  // bytes, at an address that suits the type. See PlanRequest for what is where before and after. For
  // Reduction::average sums are divided by the number of ranks: before the only rounding where the plan adds
  // in rank order, else after the last addition, with one more rounding.
  //
  // Throws what Channel::exchange throws; `data` is then unspecified and the channel broken. Ranks that run
  // different collectives find out by the messages' tags (MismatchError).
  void run(Channel& channel, std::span<std::byte> data, const Wait& wait);

  // As given.
  const Plan& plan() const { return plan_; }

 private:
  std::byte* address(const Range& range) const;
  void take(const Step& step, std::span<const std::byte> piece, std::size_t offset) const;
  void run_round(Channel& channel, std::size_t begin, std::size_t end, const Wait& wait);
  void run_local(const Step& step) const;
  // What steps that see a part of the ranks do.
  Reduction addition() const;
  void combine(std::span<const std::byte* const> sources, std::byte* target, std::size_t bytes,
               Reduction reduction) const;
  void average() const;

  Plan plan_;
  DType type_;
  Reduction reduction_;
  Tag tag_;  // without the round
  std::vector<std::byte> scratch_;
  std::byte* data_ = nullptr;  // during run()
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

// Runs a plan once.
void execute(const Plan& plan, Channel& channel, std::span<std::byte> data, DType type, Reduction reduction,
             const Wait& wait);

}  // namespace rondo::collective
