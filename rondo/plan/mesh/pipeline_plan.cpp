#include "rondo/plan/mesh/mesh_plan.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <tuple>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/plan/schedule/schedules.h"

namespace rondo::plan {

namespace {

// Layers that save the same bytes, cheapest first. The search takes the first k of each class.
struct RecomputeClass {
  std::uint64_t saved_bytes = 0;
  std::vector<std::size_t> layers;
  std::vector<double> seconds;  // seconds of the first k layers, by k
};

class CheapestSearch {
 public:
  explicit CheapestSearch(std::vector<RecomputeClass> classes) : classes_(std::move(classes)) {
    taken_.resize(classes_.size(), 0);
  }

  std::vector<std::size_t> run(std::uint64_t need) {
    look(0, need, 0);
    std::vector<std::size_t> layers;
    for (std::size_t i = 0; i < best_.size(); ++i)
      layers.insert(layers.end(), classes_[i].layers.begin(),
                    classes_[i].layers.begin() + static_cast<std::ptrdiff_t>(best_[i]));
    std::sort(layers.begin(), layers.end());
    return layers;
  }

 private:
  // Returns a lower bound of the cost of saving `need` bytes with the classes from `from` on, at their best
  // price per byte.
  double least(std::size_t from, std::uint64_t need) const {
    double price = std::numeric_limits<double>::infinity();
    for (std::size_t i = from; i < classes_.size(); ++i)
      price = std::min(price, classes_[i].seconds[1] / static_cast<double>(classes_[i].saved_bytes));
    return need == 0 ? 0 : price * static_cast<double>(need);
  }

  void look(std::size_t at, std::uint64_t need, double seconds) {
    if (seconds + least(at, need) >= best_s_ || ++looked_ > kMostLooked) return;
    if (need == 0) {
      best_s_ = seconds;
      best_ = taken_;
      return;
    }
    if (at == classes_.size()) return;
    const RecomputeClass& own = classes_[at];
    const std::uint64_t enough =
        std::min<std::uint64_t>(own.layers.size(), (need + own.saved_bytes - 1) / own.saved_bytes);
    for (std::uint64_t count = enough + 1; count-- > 0;) {
      const std::uint64_t saved = count * own.saved_bytes;
      taken_[at] = count;
      look(at + 1, need > saved ? need - saved : 0, seconds + own.seconds[count]);
    }
    taken_[at] = 0;
  }

  // Limit on visited nodes; far more than models with a few kinds of layers need.
  static constexpr int kMostLooked = 200'000;

  std::vector<RecomputeClass> classes_;
  std::vector<std::uint64_t> taken_, best_;
  double best_s_ = std::numeric_limits<double>::infinity();
  int looked_ = 0;
};

}  // namespace

std::vector<std::size_t> cheapest_recomputation(const std::vector<Recomputation>& layers,
                                                std::uint64_t need) {
  std::map<std::uint64_t, RecomputeClass, std::greater<>> by_bytes;
  std::vector<std::size_t> all;
  std::uint64_t savable = 0;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].saved_bytes == 0) continue;
    RecomputeClass& own = by_bytes[layers[i].saved_bytes];
    own.saved_bytes = layers[i].saved_bytes;
    own.layers.push_back(i);
    all.push_back(i);
    savable += layers[i].saved_bytes;
  }
  if (need == 0) return {};
  if (savable <= need) return all;
  std::vector<RecomputeClass> classes;
  for (auto& [bytes, own] : by_bytes) {
    std::stable_sort(own.layers.begin(), own.layers.end(),
                     [&](std::size_t a, std::size_t b) { return layers[a].seconds < layers[b].seconds; });
    own.seconds = {0};
    for (const std::size_t layer : own.layers)
      own.seconds.push_back(own.seconds.back() + layers[layer].seconds);
    classes.push_back(std::move(own));
  }
  return CheapestSearch(std::move(classes)).run(need);
}

namespace {

using simulate::LayerCost;
using simulate::StateCost;

constexpr double kNever = std::numeric_limits<double>::infinity();
// Largest number of stages whose cuts are moved one by one; beyond it moving takes longer than it gains.
constexpr int kMostMovedStages = 32;
// Largest number of ways to cut that are all tried.
constexpr double kFewCuts = 60;
// Largest number of layers for which recomputation is exchanged between layers.
constexpr std::size_t kMostTried = 16;

std::size_t place(int number) { return static_cast<std::size_t>(number); }

// Best time of a stage, and its memory.
struct StageBest {
  double seconds = kNever;
  std::uint64_t bytes = 0;
  bool operator<(const StageBest& other) const {
    return std::tie(seconds, bytes) < std::tie(other.seconds, other.bytes);
  }
};

// Sums of a stage's layers; the dynamic program adds layers from the last to the first.
struct StageSums {
  StateCost state;
  double passes_s = 0, recompute_s = 0;
  std::uint64_t kept = 0, savable = 0, workspace = 0;
};

class PipelinePlanner {
 public:
  PipelinePlanner(const simulate::PipelineCosts& costs, const std::string& schedule, int micro_batches,
                  int chunks, std::uint64_t limit)
      : costs_(costs),
        layers_(costs.layers()),
        schedule_(pipeline::make_schedule(schedule, costs.shape().pipeline, micro_batches, chunks)),
        alive_(activations_of_stages(schedule_)),
        splits_(simulate::splits_backward(schedule)),
        limit_(limit) {
    choice_.schedule = schedule;
    choice_.micro_batches = micro_batches;
    choice_.chunks = chunks;
    if (layers_.size() < place(schedule_.stages()))
      throw UsageError(str("a model of ", layers_.size(), " layers cannot be cut into ", schedule_.stages(),
                           " stages of at least one layer each"));
  }

  PipelinePlan run(const Wait& wait) {
    // The dynamic program estimates the memory of stages. If the plan of its cuts does not fit, the cuts with
    // the least memory may.
    const std::vector<int> fast = best_cuts(/*within_limit=*/true);
    PipelinePlan best = assigned(fast.empty() ? best_cuts(/*within_limit=*/false) : fast);
    if (!fast.empty() && !fits(best)) {
      PipelinePlan lean = assigned(best_cuts(/*within_limit=*/false));
      if (is_better(lean, best)) best = std::move(lean);
    }
    if (has_few_cuts()) {
      try_all_cuts({0}, best, wait);
      return best;
    }
    for (bool moved = schedule_.stages() <= kMostMovedStages; moved && !has_ended(wait);) {
      moved = false;
      for (std::size_t stage = 1; stage < place(schedule_.stages()) && !has_ended(wait); ++stage) {
        for (const int by : {-1, 1}) {
          std::vector<int> first = best.choice.first;
          first[stage] += by;
          const int end = stage + 1 < first.size() ? first[stage + 1] : static_cast<int>(layers_.size());
          if (first[stage] <= first[stage - 1] || first[stage] >= end) continue;
          PipelinePlan other = assigned(std::move(first));
          if (!is_better(other, best)) continue;
          best = std::move(other);
          moved = true;
        }
      }
    }
    return best;
  }

 private:
  bool has_few_cuts() const {
    double ways = 1;  // number of ways to choose the first layers of all stages except the first
    for (std::size_t i = 1; i < place(schedule_.stages()); ++i)
      ways *= static_cast<double>(layers_.size() - i) / static_cast<double>(i);
    return ways <= kFewCuts;
  }

  // Extends the stages that begin with `first` in every way.
  void try_all_cuts(const std::vector<int>& first, PipelinePlan& best, const Wait& wait) const {
    if (has_ended(wait)) return;
    if (first.size() == place(schedule_.stages())) {
      PipelinePlan other = assigned(first);
      if (is_better(other, best)) best = std::move(other);
      return;
    }
    const auto left = static_cast<int>(place(schedule_.stages()) - first.size());
    for (int next = first.back() + 1; next + left <= static_cast<int>(layers_.size()); ++next) {
      std::vector<int> more = first;
      more.push_back(next);
      try_all_cuts(more, best, wait);
    }
  }

  bool fits(const PipelinePlan& plan) const { return plan.forecast.peak_bytes <= limit_; }
  bool is_better(const PipelinePlan& a, const PipelinePlan& b) const {
    if (fits(a) != fits(b)) return fits(a);
    if (!fits(a)) return a.forecast.peak_bytes < b.forecast.peak_bytes;
    return a.forecast.step_s < b.forecast.step_s * (1 - 1e-9);
  }
  int count() const { return costs_.shape().passes * choice_.micro_batches; }
  // Returns the strategies to try along data: one if data has one rank or experts are spread, as all are
  // equal then.
  std::span<const cost::Strategy> strategies() const {
    return std::span(kStageStrategies)
        .first(costs_.shape().copies() > 1 && costs_.shape().expert == 1 ? std::size(kStageStrategies) : 1);
  }

  double pass_s(const LayerCost& layer) const {
    return layer.forward_s + (splits_ ? layer.backward_input_s + layer.backward_weight_s : layer.backward_s);
  }

  void add(StageSums& sums, std::size_t layer) const {
    const LayerCost& own = layers_[layer];
    sums.state.add(own);
    sums.passes_s += pass_s(own);
    sums.kept += own.activation_bytes;
    sums.workspace = std::max(sums.workspace, own.workspace_bytes());
    const std::uint64_t saved = own.activation_bytes - own.checkpointed_activation_bytes;
    sums.savable += saved;
    if (saved > 0) sums.recompute_s += own.forward_s;
  }

  // Returns the best of the layers in `sums` as a stage that receives `input` bytes. The cost of recomputing
  // some of the layers is assumed to be proportional to the bytes that it saves.
  StageBest best_of(int stage, const StageSums& sums, std::uint64_t input, bool within_limit) const {
    const auto held = static_cast<std::uint64_t>(alive_[place(stage)]);
    const int ranks = costs_.shape().copies(), per_rank = schedule_.stages() / schedule_.ranks;
    const std::uint64_t room =
        (limit_ - std::min(limit_, costs_.base_bytes())) / static_cast<std::uint64_t>(per_rank);
    StageBest best;
    for (const cost::Strategy strategy : strategies()) {
      const std::uint64_t fixed = sums.state.bytes_in_passes(strategy, ranks) + sums.state.gradient_bytes +
                                  sums.workspace + held * input;
      const std::uint64_t whole = fixed + held * sums.kept;
      const std::uint64_t savable = held * sums.savable;
      const std::uint64_t behind = sums.state.bytes_behind_passes(strategy, ranks, costs_.in_place());
      if (!within_limit) {
        // Without a limit the result with the least memory is the best.
        const std::uint64_t least = std::max(whole - savable, behind);
        if (static_cast<double>(least) < best.seconds) best = {static_cast<double>(least), least};
        continue;
      }
      const std::uint64_t need = whole > room ? whole - room : 0;
      if (need > savable || behind > room) continue;
      const double share = savable > 0 ? static_cast<double>(need) / static_cast<double>(savable) : 0;
      const double seconds = count() * (sums.passes_s + share * sums.recompute_s) +
                             costs_.communication_s(sums.state, strategy) +
                             sums.state.update_s(strategy, ranks);
      best = std::min(best, StageBest{seconds, whole - need});
    }
    return best;
  }

  // Returns the cuts that minimize the time of the slowest stage (without a limit: the largest memory),
  // exactly. Empty if no cuts fit.
  std::vector<int> best_cuts(bool within_limit) const {
    const std::size_t count = layers_.size(), stages = place(schedule_.stages());
    std::vector<std::vector<StageBest>> best(stages + 1, std::vector<StageBest>(count + 1));
    std::vector<std::vector<std::size_t>> from(stages + 1, std::vector<std::size_t>(count + 1, 0));
    best[0][0] = {0, 0};
    for (std::size_t stage = 1; stage <= stages; ++stage) {
      for (std::size_t end = stage; end + (stages - stage) <= count; ++end) {
        StageSums sums;
        for (std::size_t begin = end; begin-- > stage - 1;) {
          add(sums, begin);
          const std::uint64_t input = begin > 0 ? layers_[begin - 1].output_bytes : 0;
          const StageBest own = best_of(static_cast<int>(stage) - 1, sums, input, within_limit);
          if (own.seconds == kNever) continue;
          const StageBest& before = best[stage - 1][begin];
          const StageBest worst{std::max(before.seconds, own.seconds), std::max(before.bytes, own.bytes)};
          if (worst < best[stage][end]) {
            best[stage][end] = worst;
            from[stage][end] = begin;
          }
        }
      }
    }
    if (best[stages][count].seconds == kNever) return {};
    std::vector<int> first(stages);
    for (std::size_t stage = stages, end = count; stage > 0; --stage) {
      end = from[stage][end];
      first[stage - 1] = static_cast<int>(end);
    }
    return first;
  }

  // Returns the plan for these cuts, with each rank's fastest strategy and recomputation within the limit.
  PipelinePlan assigned(std::vector<int> first) const {
    PipelinePlan plan{choice_, {}};
    plan.choice.first = std::move(first);
    plan.choice.strategies.assign(place(schedule_.ranks), cost::Strategy::ddp);
    plan.choice.checkpointed.assign(layers_.size(), false);
    for (int rank = 0; rank < schedule_.ranks; ++rank) assign(rank, plan.choice);
    plan.forecast = costs_.forecast(plan.choice);
    return plan;
  }

  void assign(int rank, simulate::PipelineChoice& choice) const {
    StateCost state;
    std::vector<std::size_t> own;
    std::vector<Recomputation> again;
    for (int stage = 0; stage < schedule_.stages(); ++stage) {
      if (schedule_.rank_of_stage[place(stage)] != rank) continue;
      const int end =
          stage + 1 < schedule_.stages() ? choice.first[place(stage + 1)] : static_cast<int>(layers_.size());
      for (int i = choice.first[place(stage)]; i < end; ++i) {
        const LayerCost& layer = layers_[place(i)];
        state.add(layer);
        own.push_back(place(i));
        const std::uint64_t saved = layer.activation_bytes - layer.checkpointed_activation_bytes;
        again.push_back(
            {count() * layer.forward_s, static_cast<std::uint64_t>(alive_[place(stage)]) * saved});
      }
    }
    double best_s = kNever;
    std::uint64_t best_bytes = std::numeric_limits<std::uint64_t>::max();
    const simulate::PipelineChoice before = choice;
    for (const cost::Strategy strategy : strategies()) {
      simulate::PipelineChoice tried = before;
      tried.strategies[place(rank)] = strategy;
      double seconds =
          costs_.communication_s(state, strategy) + state.update_s(strategy, costs_.shape().copies());
      std::uint64_t peak = costs_.rank_peak(tried, schedule_, rank);
      // Recomputation needs some memory itself, so one pass may not suffice.
      const std::size_t savable =
          cheapest_recomputation(again, std::numeric_limits<std::uint64_t>::max()).size();
      std::size_t taken = 0;
      double recompute_s = 0;
      for (std::uint64_t need = 0; peak > limit_ && taken < savable;) {
        need += peak - limit_;
        const std::vector<std::size_t> chosen = cheapest_recomputation(again, need);
        for (const std::size_t layer : own) tried.checkpointed[layer] = false;
        recompute_s = 0;
        for (const std::size_t i : chosen) {
          tried.checkpointed[own[i]] = true;
          recompute_s += again[i].seconds;
        }
        taken = chosen.size();
        peak = costs_.rank_peak(tried, schedule_, rank);
      }
      if (taken > 0 && peak <= limit_) {
        recompute_s -= spare(tried, rank, own, again);
        peak = costs_.rank_peak(tried, schedule_, rank);
      }
      seconds += recompute_s;
      const bool is_in = peak <= limit_, was_in = best_bytes <= limit_;
      if (is_in != was_in ? is_in : is_in ? seconds < best_s : peak < best_bytes) {
        best_s = seconds;
        best_bytes = peak;
        choice = std::move(tried);
      }
    }
  }

  // Removes recomputation where the rank fits without it, the most expensive layer first, or moves it to a
  // cheaper layer that suffices. This corrects the estimated savings. Returns the seconds saved.
  double spare(simulate::PipelineChoice& choice, int rank, const std::vector<std::size_t>& own,
               const std::vector<Recomputation>& again) const {
    std::vector<std::size_t> by_seconds(own.size());
    std::iota(by_seconds.begin(), by_seconds.end(), 0);
    std::stable_sort(by_seconds.begin(), by_seconds.end(),
                     [&](std::size_t a, std::size_t b) { return again[a].seconds > again[b].seconds; });
    const auto fits = [&] { return costs_.rank_peak(choice, schedule_, rank) <= limit_; };
    double saved = 0;
    for (const std::size_t i : by_seconds) {
      if (!choice.checkpointed[own[i]]) continue;
      choice.checkpointed[own[i]] = false;
      if (fits()) {
        saved += again[i].seconds;
        continue;
      }
      bool moved = false;
      for (std::size_t j = own.size(); j-- > 0 && own.size() <= kMostTried && !moved;) {
        const std::size_t other = by_seconds[j];
        if (again[other].seconds >= again[i].seconds) break;
        if (choice.checkpointed[own[other]] || again[other].saved_bytes == 0) continue;
        choice.checkpointed[own[other]] = moved = true;
        if (fits()) {
          saved += again[i].seconds - again[other].seconds;
        } else {
          choice.checkpointed[own[other]] = moved = false;
        }
      }
      choice.checkpointed[own[i]] = !moved;
    }
    return saved;
  }

  const simulate::PipelineCosts& costs_;
  const std::vector<LayerCost>& layers_;
  const pipeline::Schedule schedule_;
  const std::vector<int> alive_;  // by stage
  const bool splits_;
  const std::uint64_t limit_;
  simulate::PipelineChoice choice_;
};

}  // namespace

PipelinePlan plan_pipeline(const simulate::PipelineCosts& costs, const std::string& schedule,
                           int micro_batches, int chunks, std::uint64_t memory_limit, const Wait& wait) {
  return PipelinePlanner(costs, schedule, micro_batches, chunks, memory_limit).run(wait);
}

}  // namespace rondo::plan
