#include "rondo/parallel/schedule/policy.h"

#include "rondo/base/error.h"
#include "rondo/base/random.h"
#include "rondo/base/text.h"
#include "rondo/parallel/schedule/communication_options.h"

namespace rondo {
namespace {

class Fifo final : public SchedulePolicy {
 public:
  std::string name() const override { return "fifo"; }
  std::size_t next(std::span<const CommunicationSegment* const>) override { return 0; }
};

// Starts the segment that is needed first (ByteScheduler, Peng et al., SOSP'19; P3, Jayarajan et al.,
// MLSys'19).
class Priority : public SchedulePolicy {
 public:
  std::string name() const override { return "priority"; }
  std::size_t next(std::span<const CommunicationSegment* const> waiting) override {
    std::size_t first = 0;
    for (std::size_t i = 1; i < waiting.size(); ++i) {
      if (waiting[i]->priority < waiting[first]->priority) first = i;
    }
    return first;
  }
};

// Defers segments to their slot, then starts them in the order of the plan, which is their priority.
class PlannedOrder final : public Priority {
 public:
  std::string name() const override { return "plan"; }
  void reach(std::int64_t slot) override { slot_ = slot; }
  bool allows(const CommunicationSegment& segment) const override { return segment.slot <= slot_; }

 private:
  std::int64_t slot_ = 0;
};

// Starts segments in any legal order, to show that results do not depend on the order.
class Random final : public SchedulePolicy {
 public:
  explicit Random(std::uint64_t seed) : stream_(seed) {}
  std::string name() const override { return "random"; }
  std::size_t next(std::span<const CommunicationSegment* const> waiting) override {
    return stream_.below(waiting.size());
  }
  std::size_t release(std::size_t waiting) override { return stream_.below(waiting + 1); }

 private:
  RandomStream stream_;
};

}  // namespace

std::unique_ptr<SchedulePolicy> make_policy(const PolicyOptions& options) {
  if (options.name == "fifo") return std::make_unique<Fifo>();
  if (options.name == "priority") return std::make_unique<Priority>();
  if (options.name == "plan") return std::make_unique<PlannedOrder>();
  if (options.name == "random") return std::make_unique<Random>(options.seed);
  throw UsageError(str("unknown schedule '", options.name, "'; known are: ", join(policy_names(), ", ")));
}

}  // namespace rondo
