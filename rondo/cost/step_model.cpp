#include "rondo/cost/step_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/cost/profile.h"

namespace rondo::cost {
namespace {

std::uint64_t divided_up(std::uint64_t bytes, int parts) {
  const auto n = static_cast<std::uint64_t>(parts);
  return (bytes + n - 1) / n;
}

// Limit on the number of units' forward and backward passes in one step.
constexpr std::size_t kMostSlots = 1'000'000;

void check(const StepOptions& o) {
  const auto positive = [](int value, const char* what) {
    if (value < 1) throw UsageError(str(what, " ", value, " must be at least 1"));
  };
  positive(o.ranks, "--ranks");
  positive(o.micro_batches, "--gradient-accumulation-steps");
  positive(o.prefetch_window, "--prefetch-window");
  positive(o.segments_per_collective, "--segments");
  if (o.shard_group < 0 || o.shard_group > o.ranks || (o.shard_group > 0 && o.ranks % o.shard_group != 0))
    throw UsageError(str("--shard-ranks ", o.shard_group, " does not divide --ranks ", o.ranks));
}

// Creates the jobs of each unit and records their numbers.
class JobMaker {
 public:
  explicit JobMaker(StepModel& model) : model_(model), profile_(model.profile) {}

  void add(int unit) {
    const Slots& slots = model_.slots;
    const UnitProfile& u = profile_.units[static_cast<std::size_t>(unit)];
    const int window = model_.options.prefetch_window;
    const int passes = slots.micro_batches;
    const std::uint64_t combined = u.gradient_bytes - u.own_gradient_bytes;
    first_[unit_index(unit)] = model_.jobs.size();
    for (int k = 0; k < passes; ++k) {
      const int forward = slots.forward(k, unit);
      const int backward = slots.backward(k, unit);
      if (k == 0) add({JobKind::gather_updated, unit, k, 0, forward - 1, forward, 0, u.parameter_bytes});
      // Not before the previous pass has released the unit's buffer, unless there is no slot in between.
      const int earliest = k == 0 ? 0 : std::min(slots.backward(k - 1, unit) + 1, forward - 1);
      add({JobKind::gather_forward, unit, k, std::max(earliest, forward - window), forward - 1, forward, 0,
           u.parameter_bytes});
      if (unit + 1 < slots.units)
        add({JobKind::gather_backward, unit, k, std::max(forward + 1, backward - window), backward - 1,
             backward, 0, u.parameter_bytes});
      add({JobKind::reduce_scatter, unit, k, backward + 1, slots.epilogue(), slots.end(), 0, combined});
      if (k + 1 == passes)
        add({JobKind::all_reduce, unit, k, backward + 1, slots.epilogue(), slots.end(), 0, combined});
    }
  }

  // Returns the numbers of a unit's jobs under a strategy.
  std::vector<int> jobs_of(int unit, Strategy strategy) const {
    std::vector<int> numbers;
    for (std::size_t j = first_.at(unit_index(unit)); j < model_.jobs.size(); ++j) {
      const Job& job = model_.jobs[j];
      if (job.unit != unit) break;  // a unit's jobs are contiguous
      if (job.segments > 0 && brings(strategy, job)) numbers.push_back(static_cast<int>(j));
    }
    return numbers;
  }

 private:
  static std::size_t unit_index(int unit) { return static_cast<std::size_t>(unit); }

  bool brings(Strategy strategy, const Job& job) const {
    const bool is_last_pass = job.micro_batch + 1 == model_.slots.micro_batches;
    switch (job.kind) {
      case JobKind::all_reduce:
        return strategy == Strategy::ddp;
      case JobKind::reduce_scatter:
        return shards_gradients(strategy) || (strategy == Strategy::zero1 && is_last_pass);
      case JobKind::gather_updated:
        return strategy == Strategy::zero1 || strategy == Strategy::zero2;
      case JobKind::gather_forward:
        return shards_parameters(strategy);
      case JobKind::gather_backward:
        return strategy == Strategy::zero3;
    }
    return false;
  }

  void add(Job job) {
    // Does nothing for parameters in shared memory, which are never gathered.
    if (profile_.link.parameters_in_place && collective(job.kind) == Collective::all_gather) job.bytes = 0;
    const StepOptions& o = model_.options;
    const int group = job.kind == JobKind::all_reduce ? o.ranks : model_.shard_group;
    if (job.bytes > 0 && o.ranks > 1) {
      const std::uint64_t least = std::max<std::uint64_t>(profile_.link.saturating_bytes, 1);
      const std::uint64_t pieces =
          o.segment_bytes > 0 ? (job.bytes + o.segment_bytes - 1) / o.segment_bytes
                              : std::min<std::uint64_t>(
                                    job.bytes / least, static_cast<std::uint64_t>(o.segments_per_collective));
      job.segments = static_cast<int>(std::clamp<std::uint64_t>(pieces, 1, 4096));
      job.segment_s = segment_seconds(job, group);
    }
    if (job.segment_s <= 0) job.segments = 0;
    model_.jobs.push_back(job);
  }

  double segment_seconds(const Job& job, int group) {
    const Link& link = profile_.link;
    const std::uint64_t bytes = job.segment_bytes(0);
    const Collective what = collective(job.kind);
    if (!link.curve(what).in_range(bytes) && noted_.insert({what, bytes}).second && noted_.size() <= 8) {
      const auto& points = link.curve(what).points();
      model_.notes.push_back(str(name(what), " of ", to_string(Bytes{bytes}),
                                 " lies outside of the measured ", to_string(Bytes{points.front().bytes}),
                                 " to ", to_string(Bytes{points.back().bytes}),
                                 ": its time is extrapolated"));
    }
    double result = link.seconds(what, static_cast<double>(bytes), group);
    // Hybrid sharding: each group's reduced shards are all-reduced over the replicas.
    const int replicas = model_.options.ranks / model_.shard_group;
    if (job.kind == JobKind::reduce_scatter && replicas > 1) {
      result +=
          link.seconds(Collective::all_reduce, static_cast<double>(bytes) / model_.shard_group, replicas);
    }
    return result;
  }

  StepModel& model_;
  const Profile& profile_;
  std::vector<std::size_t> first_ = std::vector<std::size_t>(profile_.units.size());
  std::set<std::pair<Collective, std::uint64_t>> noted_;
};

// `overhead_s` is the unit's share of the time that a step spends outside units and update. It is added to
// the update, which every plan has once a step.
ChoiceCost price(const UnitProfile& unit, UnitChoice choice, int shard_group, bool in_place,
                 double overhead_s) {
  const Strategy s = choice.strategy;
  ChoiceCost cost;
  cost.choice = choice;
  cost.persistent_bytes =
      divided_up(unit.parameter_bytes,
                 shards_parameters(s) || (in_place && shards_optimizer(s)) ? shard_group : 1) +
      divided_up(unit.optimizer_bytes, shards_optimizer(s) ? shard_group : 1);
  const std::uint64_t part = divided_up(unit.gradient_bytes, shard_group);
  if (in_place) {
    // Reduced in the tensors that autograd produced, and released after the optimizer.
    cost.reduced_bytes = unit.gradient_bytes;
  } else if (shards_gradients(s)) {
    cost.reduced_bytes = part;
  } else {
    // Gradients are in a flat buffer; zero1 reduces its shard into a second buffer.
    cost.reduced_bytes = unit.gradient_bytes + (s == Strategy::zero1 && shard_group > 1 ? part : 0);
  }
  cost.held_bytes = choice.checkpoint ? unit.checkpointed_activation_bytes : unit.activation_bytes;
  cost.forward_bytes = cost.held_bytes + unit.forward_workspace_bytes;
  // A recomputed unit has all its activations during its own backward. The measured peak includes gradients;
  // they are counted separately and in full.
  cost.backward_bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(
      0, static_cast<std::int64_t>(unit.activation_bytes) + backward_workspace(unit, choice.checkpoint)));
  // Autograd's gradients are copied into a flat buffer after the activations are freed. It is a second
  // buffer, except under zero3, which reuses the buffer of the parameters. In place there is no copy.
  if (!in_place && shard_group > 1 && !shards_parameters(s))
    cost.backward_bytes = std::max(cost.backward_bytes, unit.gradient_bytes);
  if (!shards_gradients(s)) cost.backward_bytes += unit.gradient_bytes;
  cost.backward_s = unit.backward_s + (choice.checkpoint ? unit.recompute_s : 0);
  cost.optimizer_s = unit.optimizer_s / (shards_optimizer(s) ? shard_group : 1) + overhead_s;
  return cost;
}

}  // namespace

Collective collective(JobKind kind) {
  switch (kind) {
    case JobKind::all_reduce:
      return Collective::all_reduce;
    case JobKind::reduce_scatter:
      return Collective::reduce_scatter;
    default:
      return Collective::all_gather;
  }
}

std::string_view name(JobKind kind) {
  constexpr std::array<std::string_view, kJobKinds> names{"all_reduce", "reduce_scatter", "gather_updated",
                                                          "gather_forward", "gather_backward"};
  return names[static_cast<std::size_t>(kind)];
}

std::uint64_t Job::bytes_between(int from, int to) const {
  const auto n = static_cast<std::uint64_t>(std::max(segments, 1));
  const auto before = [&](int index) {
    const auto i = static_cast<std::uint64_t>(index);
    return bytes / n * i + std::min(i, bytes % n);
  };
  return before(to) - before(from);
}

const ChoiceCost& StepModel::cost_of(int unit, UnitChoice choice) const {
  for (const ChoiceCost& cost : choices[static_cast<std::size_t>(unit)]) {
    if (cost.choice == choice) return cost;
  }
  throw UsageError(
      str("unit '", profile.units[static_cast<std::size_t>(unit)].name, "' cannot be ", describe(choice)));
}

bool StepModel::allows(int unit, UnitChoice choice) const {
  const auto& all = choices[static_cast<std::size_t>(unit)];
  return std::any_of(all.begin(), all.end(), [&](const ChoiceCost& c) { return c.choice == choice; });
}

double StepModel::least_compute_s() const {
  double total = 0;
  for (const auto& unit : profile.units) total += slots.micro_batches * (unit.forward_s + unit.backward_s);
  for (const auto& unit : choices) {
    double least = unit.front().optimizer_s;
    for (const ChoiceCost& cost : unit) least = std::min(least, cost.optimizer_s);
    total += least;
  }
  return total;
}

StepModel make_step_model(Profile profile, const StepOptions& options) {
  check(options);
  StepModel model;
  model.profile = std::move(profile);
  model.options = options;
  model.shard_group = options.shard_group == 0 ? options.ranks : options.shard_group;
  const auto most = kMostSlots / (2 * std::max<std::size_t>(model.profile.units.size(), 1));
  if (static_cast<std::size_t>(options.micro_batches) > most) {
    throw UsageError(str("--gradient-accumulation-steps ", options.micro_batches, " of ",
                         model.profile.units.size(), " units exceed the planner's limit; the maximum is ",
                         most));
  }
  model.slots = {static_cast<int>(model.profile.units.size()), options.micro_batches};
  if (model.profile.spread > kSteadySpread) {
    model.notes.push_back(str("half of the profile's passes lie within ",
                              std::lround(model.profile.spread * 100),
                              " % of their median, and predictions are no more accurate than that; profile "
                              "again on an idle machine"));
  }
  if (!model.profile.made_for.empty() && model.profile.overhead_s == 0 &&
      !model.profile.link.parameters_in_place) {
    model.notes.push_back(
        "the profile lacks overhead_s, the computation outside units, because an earlier rondo measured it: "
        "steps take a few percent longer than predicted; profile again");
  }
  if (const auto note = overhead_note(model.profile, options.micro_batches)) model.notes.push_back(*note);
  JobMaker maker(model);
  for (int unit = 0; unit < model.units(); ++unit) maker.add(unit);
  for (int unit = 0; unit < model.units(); ++unit) {
    const UnitProfile& u = model.profile.units[static_cast<std::size_t>(unit)];
    std::vector<ChoiceCost> costs;
    for (const Strategy strategy : kStrategies) {
      Strategy s = strategy;
      if (!u.strategies.empty() &&
          std::find(u.strategies.begin(), u.strategies.end(), s) == u.strategies.end())
        continue;
      // Nothing lies between forward and backward of the last unit; its parameters would be freed and
      // gathered again at once.
      if (s == Strategy::zero3 && unit + 1 == model.units()) {
        if (u.strategies.empty()) continue;
        s = Strategy::zero3_keep;
      }
      for (const bool checkpoint : {false, true}) {
        if (checkpoint && u.checkpointed_activation_bytes >= u.activation_bytes) continue;
        ChoiceCost cost = price(u, {s, checkpoint}, model.shard_group, model.profile.link.parameters_in_place,
                                model.profile.overhead_s / model.units());
        cost.jobs = maker.jobs_of(unit, s);
        for (const int number : cost.jobs) {
          const Job& job = model.jobs[static_cast<std::size_t>(number)];
          cost.communication_s += job.seconds();
          if (job.kind == JobKind::gather_forward) cost.gathered_bytes = u.parameter_bytes;
        }
        const bool is_new = std::none_of(costs.begin(), costs.end(),
                                         [&](const ChoiceCost& c) { return c.choice == cost.choice; });
        if (is_new) costs.push_back(std::move(cost));
      }
    }
    model.choices.push_back(std::move(costs));
  }
  return model;
}

}  // namespace rondo::cost
