#include "rondo/plan/mesh/mesh_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::plan {
namespace {

// Limit on micro-batches per rank of a pipeline. More shorten the bubble only a little.
constexpr int kMostMicroBatchesARank = 8;
// Smallest time limit of one candidate along data.
constexpr auto kLeastTime = std::chrono::milliseconds(200);

std::string size_text(std::uint64_t bytes) { return to_string(Bytes{bytes}); }

class MeshPlanner {
 public:
  MeshPlanner(const cost::Profile& profile, const cost::StepOptions& step, const PlannerOptions& options,
              const MeshSearch& search)
      : profile_(profile),
        step_(step),
        options_(options),
        search_(search),
        links_(simulate::same_links(profile.link)),
        start_(Clock::now()),
        deadline_(Deadline::after(options.time_limit)) {}

  MeshPlan run() {
    MeshPlan plan;
    plan.candidates = candidates();
    // Most promising first: many of the others can then be skipped.
    std::stable_sort(
        plan.candidates.begin(), plan.candidates.end(),
        [](const MeshCandidate& a, const MeshCandidate& b) { return a.lower_bound_s < b.lower_bound_s; });
    std::size_t left = plan.candidates.size();
    for (MeshCandidate& candidate : plan.candidates) {
      look(candidate, left--);
      if (options_.progress && candidate.peak_bytes > 0)
        options_.progress(
            str(candidate.name(), ": ", candidate.fits ? str(candidate.step_s * 1e3, " ms") : candidate.why));
      if (candidate.fits) best_s_ = std::min(best_s_, candidate.step_s);
    }
    rank(plan.candidates);
    if (plan.best().peak_bytes == 0) throw UsageError(plan.best().why);
    plan.solve_s = seconds(Clock::now() - start_);
    return plan;
  }

 private:
  std::uint64_t samples() const {
    return search_.samples > 0
               ? search_.samples
               : profile_.batch_size * static_cast<std::uint64_t>(step_.ranks * step_.micro_batches);
  }

  bool is_divided_along(const std::string& dimension) const {
    return std::any_of(profile_.layers.begin(), profile_.layers.end(), [&](const cost::LayerProfile& layer) {
      return std::any_of(layer.parts.begin(), layer.parts.end(), [&](const cost::LayerPart& part) {
        return part.ranks > 1 && part.dimension == dimension;
      });
    });
  }
  // Tensor is always tried; if the profile lacks such parts, its candidates report that.
  std::vector<std::string> dividing() const {
    std::vector<std::string> dimensions = {"tensor"};
    for (const char* dimension : {"context", "expert"}) {
      if (is_divided_along(dimension)) dimensions.emplace_back(dimension);
    }
    return dimensions;
  }

  std::vector<MeshCandidate> candidates() const {
    std::vector<Mesh> meshes = meshes_of(step_.ranks, dividing());
    if (search_.mesh) {
      meshes = {ordered_mesh(*search_.mesh, step_.ranks)};
      if (const std::string refusal = search_.refusal ? search_.refusal(meshes.front()) : "";
          !refusal.empty())
        throw UsageError(refusal);
    }
    std::vector<MeshCandidate> all;
    for (const Mesh& mesh : meshes) add_candidates(mesh, all);
    if (all.empty())
      throw UsageError(str(samples(),
                           " samples per step do not divide evenly among the replicas of any mesh of ",
                           step_.ranks, " ranks"));
    return all;
  }

  // Adds the candidates of a mesh: each shard group, or each schedule with each number of micro-batches.
  void add_candidates(const Mesh& mesh, std::vector<MeshCandidate>& all) const {
    MeshCandidate candidate;
    candidate.mesh = mesh;
    const auto replicas =
        static_cast<std::uint64_t>(replicas_of(mesh)) * static_cast<std::uint64_t>(step_.micro_batches);
    candidate.batch_size = samples() / replicas;
    if (samples() % replicas != 0) {
      if (search_.mesh)
        throw UsageError(str(samples(), " samples a step do not divide by ", replicas_of(mesh),
                             " replicas and ", step_.micro_batches, " passes of mesh ", to_string(mesh)));
      return;
    }
    const auto refuse = [&](const std::string& why) {
      candidate.why = why;
      candidate.lower_bound_s = std::numeric_limits<double>::infinity();
      all.push_back(candidate);
    };
    if (const std::string refusal = search_.refusal ? search_.refusal(mesh) : ""; !refusal.empty())
      return refuse(refusal);
    try {
      if (size_along(mesh, "pipeline") == 1) return add_along_data(candidate, all);
      add_pipelines(candidate, all);
    } catch (const UsageError& error) {
      refuse(error.what());
    }
  }

  void add_along_data(MeshCandidate candidate, std::vector<MeshCandidate>& all) const {
    const int data = shape_of(candidate).copies();
    const cost::Profile part = part_of(candidate);
    const bool is_along_data = size_along(candidate.mesh, "data") == step_.ranks;
    for (int group = data; group >= std::min(2, data); --group) {
      // If a dimension divides layers, training shards along all ranks with the same parameters.
      const bool is_asked = step_.shard_group == 0 ? group == data || (is_along_data && data % group == 0)
                                                   : group == step_.shard_group && data % group == 0;
      if (!is_asked) continue;
      candidate.shard_group = group;
      double seconds = part.overhead_s;
      for (const cost::UnitProfile& unit : part.units)
        seconds += step_.micro_batches * (unit.forward_s + unit.backward_s) + unit.optimizer_s / group;
      candidate.lower_bound_s = seconds;
      all.push_back(candidate);
    }
  }

  void add_pipelines(MeshCandidate candidate, std::vector<MeshCandidate>& all) const {
    const int ranks = size_along(candidate.mesh, "pipeline");
    const auto layers = simulate::layers_of(profile_).size();
    for (const std::string& schedule : pipeline::schedule_names()) {
      if (schedule == "gpipe") continue;  // 1f1b is as fast and needs less memory
      // The backward of experts cannot be split.
      if (simulate::splits_backward(schedule) && is_divided_along("expert")) continue;
      const auto stages =
          static_cast<std::size_t>(ranks) * static_cast<std::size_t>(pipeline::stages_per_rank(schedule));
      if (stages > layers) continue;
      const std::vector<int> cuts = search_.micro_batches > 0 ? std::vector<int>{search_.micro_batches}
                                                              : cuts_of(candidate.batch_size, ranks);
      for (const int micro_batches : cuts) {
        candidate.schedule = schedule;
        candidate.micro_batches = micro_batches;
        candidate.lower_bound_s = costs_of(candidate).least_step_s(micro_batches);
        all.push_back(candidate);
      }
    }
    if (all.empty() || all.back().mesh != candidate.mesh)
      throw UsageError(str("a model of ", layers, " layers cannot be cut into ", ranks,
                           " stages of at least one layer each"));
  }

  // Returns numbers of equal micro-batches that fill the pipeline, limited by the samples of the batch.
  static std::vector<int> cuts_of(std::uint64_t batch, int ranks) {
    std::vector<int> cuts;
    const auto least = std::min<std::uint64_t>(batch, static_cast<std::uint64_t>(ranks));
    const std::uint64_t most = static_cast<std::uint64_t>(ranks) * kMostMicroBatchesARank;
    for (std::uint64_t count = least; count <= std::min(batch, most); ++count) {
      if (batch % count == 0) cuts.push_back(static_cast<int>(count));
    }
    if (cuts.empty()) cuts.push_back(static_cast<int>(std::min(batch, most)));
    return cuts;
  }

  simulate::MeshShape shape_of(const MeshCandidate& candidate) const {
    return mesh_shape(candidate.mesh, candidate.batch_size, step_.micro_batches);
  }
  cost::Profile part_of(const MeshCandidate& candidate) const {
    return simulate::part_of_profile(profile_, shape_of(candidate), static_cast<double>(candidate.batch_size),
                                     links_);
  }
  simulate::PipelineCosts costs_of(const MeshCandidate& candidate) const {
    return {profile_, shape_of(candidate), links_, candidate.micro_batches};
  }

  void look(MeshCandidate& candidate, std::size_t left) const {
    if (!candidate.why.empty()) return;  // refused
    if (candidate.lower_bound_s >= best_s_) {
      candidate.why = str("its lower bound is not below the ", best_s_ * 1e3, " ms of the best");
      return;
    }
    if (has_ended({deadline_, options_.cancel}) && best_s_ < std::numeric_limits<double>::infinity()) {
      candidate.why = "out of time";
      return;
    }
    if (candidate.schedule.empty()) {
      look_along_data(candidate, left);
    } else {
      look_at_pipeline(candidate);
    }
    if (!candidate.fits)
      candidate.why =
          str("needs ", size_text(candidate.peak_bytes), " of ", size_text(options_.memory_limit));
  }

  void look_along_data(MeshCandidate& candidate, std::size_t left) const {
    cost::StepOptions step = step_;
    step.ranks = shape_of(candidate).copies();
    step.shard_group = candidate.shard_group;
    auto plan = std::make_shared<DataPlan>();
    cost::Profile part = part_of(candidate);
    // Ranks write into each other's shards only if all of them share one copy.
    if (candidate.shard_group < step.ranks) part.link.parameters_in_place = false;
    part.base_bytes += simulate::engine_bytes_of_groups(profile_, shape_of(candidate));
    if (candidate.shard_group < step.ranks) {
      part.base_bytes += simulate::engine_bytes_of_group(profile_, candidate.shard_group) +
                         simulate::engine_bytes_of_group(profile_, step.ranks / candidate.shard_group);
    }
    plan->model = cost::make_step_model(std::move(part), step);
    PlannerOptions options = options_;
    options.progress = nullptr;
    // Plans along data take most of the time. Each gets twice its fair share of the remaining time.
    options.time_limit =
        std::max<Duration>(kLeastTime, 2 * deadline_.remaining() / static_cast<int>(left + 1));
    plan->answer = make_plan(plan->model, options);
    candidate.fits = plan->answer.feasible;
    candidate.step_s = plan->answer.result.step_s;
    candidate.peak_bytes = candidate.fits ? plan->answer.result.peak_bytes : plan->answer.floor.bytes;
    candidate.lower_bound_s = std::max(candidate.lower_bound_s, plan->answer.lower_bound_s);
    if (candidate.fits) candidate.lower_bound_s = std::min(candidate.lower_bound_s, candidate.step_s);
    candidate.data = std::move(plan);
  }

  void look_at_pipeline(MeshCandidate& candidate) const {
    const simulate::PipelineCosts costs = costs_of(candidate);
    auto plan =
        std::make_shared<PipelinePlan>(plan_pipeline(costs, candidate.schedule, candidate.micro_batches, 2,
                                                     options_.memory_limit, {deadline_, options_.cancel}));
    candidate.peak_bytes = plan->forecast.peak_bytes;
    candidate.fits = candidate.peak_bytes <= options_.memory_limit;
    candidate.step_s = plan->forecast.step_s;
    candidate.layers = costs.layers();
    candidate.pipeline = std::move(plan);
  }

  void rank(std::vector<MeshCandidate>& all) const {
    const auto place = [](const MeshCandidate& c) { return c.fits ? 0 : c.peak_bytes > 0 ? 1 : 2; };
    std::stable_sort(all.begin(), all.end(), [&](const MeshCandidate& a, const MeshCandidate& b) {
      if (place(a) != place(b)) return place(a) < place(b);
      if (place(a) == 0) return a.step_s < b.step_s;
      return place(a) == 1 && a.peak_bytes < b.peak_bytes;
    });
    for (MeshCandidate& candidate : all) {
      if (!candidate.fits) continue;
      const std::string idle =
          candidate.pipeline
              ? str("a rank is idle for ", std::lround(candidate.pipeline->forecast.idle_share() * 100),
                    " % of it")
              : str("it waits for ",
                    std::lround(1e2 * candidate.data->answer.result.exposed_s / candidate.step_s),
                    " % of it");
      const double slower = candidate.step_s / all.front().step_s - 1;
      candidate.why = &candidate == &all.front() ? str("the fastest; ", idle)
                                                 : str(std::round(slower * 1e3) / 10, " % slower; ", idle);
    }
  }

  const cost::Profile& profile_;
  const cost::StepOptions& step_;
  const PlannerOptions& options_;
  const MeshSearch& search_;
  const simulate::MeshLinks links_;
  const TimePoint start_;
  const Deadline deadline_;
  double best_s_ = std::numeric_limits<double>::infinity();
};

}  // namespace

std::string MeshCandidate::name() const {
  std::string text = to_string(mesh);
  if (!schedule.empty()) return str(text, " ", schedule, " x ", micro_batches);
  const int copies = replicas_of(mesh) * size_along(mesh, "context");
  if (shard_group > 0 && shard_group != copies) text += str(" shard_group=", shard_group);
  return text;
}

std::vector<Mesh> meshes_of(int ranks, const std::vector<std::string>& dividing) {
  std::vector<Mesh> meshes;
  for (int pipeline = 1; pipeline <= ranks; ++pipeline) {
    if (ranks % pipeline != 0) continue;
    for (int parts = 1; parts <= ranks / pipeline; ++parts) {
      if (ranks / pipeline % parts != 0) continue;
      Mesh mesh = {{"data", ranks / pipeline / parts}};
      if (pipeline > 1) mesh.push_back({"pipeline", pipeline});
      if (parts == 1) meshes.push_back(ordered_mesh(mesh, ranks));
      for (std::size_t i = 0; i < dividing.size() && parts > 1; ++i) {
        Mesh divided = mesh;
        divided.push_back({dividing[i], parts});
        meshes.push_back(ordered_mesh(divided, ranks));
      }
    }
  }
  return meshes;
}

simulate::MeshShape mesh_shape(const Mesh& mesh, std::uint64_t samples, int passes) {
  return {.pipeline = size_along(mesh, "pipeline"),
          .data = size_along(mesh, "data"),
          .tensor = size_along(mesh, "tensor"),
          .samples = static_cast<double>(samples),
          .passes = passes,
          .context = size_along(mesh, "context"),
          .expert = size_along(mesh, "expert")};
}

MeshPlan plan_mesh(const cost::Profile& profile, const cost::StepOptions& step, const PlannerOptions& options,
                   const MeshSearch& search) {
  return MeshPlanner(profile, step, options, search).run();
}

}  // namespace rondo::plan
