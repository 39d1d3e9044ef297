#include "rondo/profile/link_profile.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/parallel/schedule/communication_queue.h"
#include "rondo/parallel/sharded/shard_collectives.h"

namespace rondo {
namespace {

using cost::Collective;
using cost::CostPoint;

// Blocks until an accelerator has completed all work queued so far.
void synchronize(c10::Device device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  guard.synchronizeDevice((device.has_index() ? device : guard.getDevice()).index());
}

// Returns this rank's times of alternating actions, with the work on `device`, by action and run; all ranks
// begin each run together.
std::vector<std::vector<double>> take_turns(const Group& group, c10::Device device, int runs,
                                            const std::vector<std::function<void()>>& actions) {
  std::vector<std::vector<double>> times(actions.size());
  for (int i = 0; i <= runs; ++i) {
    for (std::size_t a = 0; a < actions.size(); ++a) {
      synchronize(device);
      barrier(group);
      const TimePoint begin = Clock::now();
      actions[a]();
      synchronize(device);
      if (i > 0) times[a].push_back(seconds(Clock::now() - begin));  // the first run warms up
    }
  }
  return times;
}

// Returns the slowest rank's median time.
double measure(const Group& group, c10::Device device, int runs, const std::function<void()>& action) {
  return over_ranks(median(take_turns(group, device, runs, {action}).front()), group, ReduceOp::MAX);
}

// The transport of this job's communication segments.
class Road {
 public:
  Road(const Context& context, const LinkProfileOptions& options)
      : in_background_(travels_in_background(context)),
        device_(options.device),
        group_(in_background_ ? context.new_group(context.world().ranks()) : context.world()) {
    std::unique_ptr<Leader> leader;
    if (in_background_)
      leader = std::make_unique<Leader>(context.new_group(context.world().ranks()), context.timeout());
    queue_ = std::make_unique<CommunicationQueue>(make_policy({"fifo"}), options.in_flight_limit,
                                                  std::move(leader));
  }

  bool in_background() const { return in_background_; }
  const Group& group() const { return group_; }

  at::Tensor memory(std::int64_t elements) const {
    const at::TensorOptions kind = at::TensorOptions(at::kFloat).device(device_);
    const at::Tensor memory = in_background_ || !device_.is_cpu() ? at::empty({elements}, kind)
                                                                  : empty_registered({elements}, kind);
    return memory.fill_(1);
  }

  // Submits consecutive segments of one collective; an all-reduce is a reduce-scatter and an all-gather.
  std::vector<CommunicationQueue::Ticket> send(Collective collective, const at::Tensor& whole,
                                               const at::Tensor& part, int segments) {
    const std::vector<at::Tensor> parts = whole.chunk(group_.size());
    std::vector<CommunicationQueue::Ticket> tickets;
    for (int i = 0; i < segments; ++i) {
      std::optional<std::uint64_t> before;
      if (collective != Collective::all_gather) {
        before = submit({}, whole,
                        [group = group_, part, parts] { return start_reduce_scatter(group, part, parts); });
      }
      if (collective != Collective::reduce_scatter) {
        before = submit(before, whole,
                        [group = group_, part, parts] { return start_all_gather(group, parts, part); });
      }
      tickets.push_back(*before);
    }
    return tickets;
  }
  void wait(const std::vector<CommunicationQueue::Ticket>& tickets) {
    for (const CommunicationQueue::Ticket ticket : tickets) queue_->wait(ticket);
    queue_->take_spans();
  }

 private:
  CommunicationQueue::Ticket submit(std::optional<std::uint64_t> after, const at::Tensor& whole,
                                    std::function<c10::intrusive_ptr<c10d::Work>()> start) {
    return queue_->submit({.collective = "profile",
                           .unit = "link",
                           .bytes = Bytes{whole.nbytes()},
                           .after = after,
                           .start = std::move(start)});
  }

  bool in_background_;
  c10::Device device_;
  Group group_;
  std::unique_ptr<CommunicationQueue> queue_;
};

// Sends a message between the ranks of a pair, there and back: twice the time of one message.
void exchange_message(const Group& group, at::Tensor& message) {
  const bool is_first = group.rank() % 2 == 0;
  const int other = group.rank() + (is_first ? 1 : -1);
  if (other >= group.size()) return;
  if (is_first) send(message, group, other);
  recv(message, group, other);
  if (!is_first) send(message, group, other);
}

// Returns the time of an action by the tensor's bytes, up to the largest size within the patience.
cost::CostCurve message_curve(const Group& group, const LinkProfileOptions& options, const char* what,
                              double share, const std::function<void(at::Tensor&)>& action) {
  const TimePoint begin = Clock::now();
  std::vector<CostPoint> points;
  double least = 0;
  for (std::uint64_t bytes = 4096; bytes <= options.largest.count; bytes *= 4) {
    const std::int64_t part = static_cast<std::int64_t>(bytes) / 4 / group.size();
    at::Tensor tensor = at::ones({part * group.size()}, at::TensorOptions(at::kFloat).device(options.device));
    const double took = measure(group, options.device, options.runs, [&] { action(tensor); });
    least = std::max(least, took * share);
    points.push_back({tensor.nbytes(), least});
    const double next = 4 * took * (options.runs + 1);
    const double so_far = over_ranks(seconds(Clock::now() - begin), group, ReduceOp::MAX);
    if (points.size() >= 2 && so_far + next > seconds(options.patience)) break;
  }
  return {std::move(points), what};
}

cost::CostCurve curve(Road& road, const LinkProfileOptions& options, Collective collective) {
  const Group& group = road.group();
  // Segments in flight at the segment size that training uses most, and some more.
  constexpr int kSegments = 6;
  const TimePoint begin = Clock::now();
  std::vector<CostPoint> points;
  double least = 0;  // keeps the curve monotone
  for (std::uint64_t bytes = 4096; bytes <= options.largest.count; bytes *= 4) {
    const std::int64_t part_size = static_cast<std::int64_t>(bytes) / 4 / group.size();
    const at::Tensor whole = road.memory(part_size * group.size());
    const at::Tensor part = road.memory(part_size);
    const int segments = road.in_background() ? kSegments : 1;
    const double all = measure(group, options.device, options.runs,
                               [&] { road.wait(road.send(collective, whole, part, segments)); });
    least = std::max(least, all / segments);
    points.push_back({whole.nbytes(), least});
    // The next size takes four times as long.
    const double next = 4 * all * (options.runs + 1);
    const double so_far = over_ranks(seconds(Clock::now() - begin), group, ReduceOp::MAX);
    if (points.size() >= 2 && so_far + next > seconds(options.patience)) break;
  }
  return {std::move(points), cost::name(collective)};
}

// Returns the share of its speed that `pass` loses to concurrent communication, which is sized to about 70 %
// of its time. An engine without its own thread progresses only in waits and hides nothing: 0.99.
double contention(Road& road, const LinkProfileOptions& options, const cost::Link& link,
                  const std::function<void()>& pass) {
  if (!road.in_background()) return 0.99;
  const Group& group = road.group();
  const double estimate = measure(group, options.device, 1, pass);
  const auto bytes = std::clamp<std::uint64_t>(link.saturating_bytes, 65536, options.largest.count);
  const std::int64_t part_size = static_cast<std::int64_t>(bytes) / 4 / group.size();
  const at::Tensor whole = road.memory(part_size * group.size());
  const at::Tensor part = road.memory(part_size);
  const double segment =
      link.seconds(Collective::all_reduce, static_cast<double>(whole.nbytes()), group.size());
  const int segments = std::clamp(static_cast<int>(0.7 * estimate / segment), 1, 1000);
  const auto communicate = [&] { return road.send(Collective::all_reduce, whole, part, segments); };
  // Compares the three actions of the same run, because the machine's speed drifts by more than the effect.
  const auto times = take_turns(group, options.device, options.contention_runs,
                                {pass, [&] { road.wait(communicate()); },
                                 [&] {
                                   const auto tickets = communicate();
                                   pass();
                                   road.wait(tickets);
                                 }});
  std::vector<double> lost;
  for (std::size_t run = 0; run < times.front().size(); ++run) {
    const double alone = times[0][run];
    const double communication = times[1][run];
    lost.push_back((times[2][run] - std::max(alone, communication)) / std::min(alone, communication));
  }
  const double ranks = group.size();
  return std::clamp(over_ranks(median(std::move(lost)), group, ReduceOp::SUM) / ranks, 0.0, 0.99);
}

}  // namespace

bool travels_in_background(const Context& context) {
  return context.world().traits().progresses_in_background;
}

cost::Link profile_link(const Context& context, const LinkProfileOptions& options,
                        const std::function<void()>& pass) {
  if (context.world_size() < 2) {
    throw UsageError(
        "measuring the link needs several ranks: give --nproc-per-node 2 or more, or start rondo profile "
        "under a launcher");
  }
  Road road(context, options);
  cost::Link link;
  link.ranks = context.world_size();
  for (const Collective collective : cost::kCollectives)
    link.curves[static_cast<std::size_t>(collective)] = curve(road, options, collective);
  if (options.messages) {
    const Group& world = context.world();
    link.send_recv = message_curve(world, options, "send_recv", 0.5,
                                   [&](at::Tensor& tensor) { exchange_message(world, tensor); });
    link.all_to_all = message_curve(world, options, "all_to_all", 1, [&](at::Tensor& tensor) {
      at::Tensor received = at::empty_like(tensor);
      const std::vector<std::int64_t> rows(static_cast<std::size_t>(world.size()),
                                           tensor.numel() / world.size());
      all_to_all_single(received, tensor, rows, rows, world);
    });
  }
  cost::fit(link);
  link.parameters_in_place =
      options.device.is_cpu() && !road.in_background() && context.world().traits().parameters_in_place;
  link.contention = contention(road, options, link, pass);
  return link;
}

}  // namespace rondo
