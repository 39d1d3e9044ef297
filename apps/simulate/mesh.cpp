#include "apps/simulate/mesh.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "rondo/base/output.h"
#include "rondo/base/text.h"
#include "rondo/pipeline/drawing.h"
#include "rondo/pipeline/stage_cuts.h"
#include "rondo/plan/mesh/mesh_plan.h"
#include "rondo/plan/schedule/schedules.h"
#include "rondo/simulate/mesh_step.h"
#include "rondo/simulate/step_simulator.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

// The ranks of a dimension as a network of their own. Ranks along tensor are neighbours, those along data lie
// `stride` apart, so fewer of these share a host.
cost::Link link_along(const SimulatedMesh& job, double contention, int ranks, int stride) {
  simulate::Topology topology = simulate::parse_topology(job.topology, job.options.ranks);
  topology.ranks = ranks;
  topology.local_ranks = std::max(1, std::min(ranks, topology.local_ranks / stride));
  if (topology.local_ranks == ranks) topology.kind = simulate::TopologyKind::host;
  return simulate::link_of(topology, job.algorithm, contention);
}

simulate::MeshShape shape_of(const cost::Profile& profile, const SimulatedMesh& job) {
  return plan::mesh_shape(job.mesh, profile.batch_size, job.options.micro_batches);
}

simulate::MeshLinks links_of(const cost::Profile& profile, const SimulatedMesh& job) {
  if (job.topology.empty()) return simulate::same_links(profile.link);
  const simulate::MeshShape shape = shape_of(profile, job);
  simulate::MeshLinks links = simulate::same_links(profile.link);
  const double contention = profile.link.contention;
  if (shape.tensor > 1) links.tensor = link_along(job, contention, shape.tensor, 1);
  if (shape.expert > 1) links.expert = link_along(job, contention, shape.expert, shape.tensor);
  if (shape.copies() > 1) links.data = link_along(job, contention, shape.copies(), shape.tensor);
  const simulate::Topology all = simulate::parse_topology(job.topology, job.options.ranks);
  // A message to a rank so many further on.
  const auto message = [&](int stride) {
    const simulate::Wire& wire = stride < all.local_ranks ? all.inside : all.between;
    const auto point = [&](std::uint64_t bytes) {
      return cost::CostPoint{bytes, wire.latency_s + static_cast<double>(bytes) / wire.bytes_per_s};
    };
    return cost::CostCurve({point(1), point(1 << 30)}, "send_recv");
  };
  links.pipeline.send_recv = message(shape.copies() * shape.tensor);
  // Round the ring the way is as long as from the last rank to the first.
  links.context.send_recv = message((shape.context - 1) * shape.expert * shape.tensor);
  return links;
}

Json simulate_along_data(const cost::Profile& profile, const SimulatedMesh& job,
                         const simulate::MeshLinks& links) {
  const simulate::MeshShape shape = shape_of(profile, job);
  cost::Profile part = simulate::part_of_profile(profile, shape, shape.samples, links);
  part.link = links.data;
  cost::StepOptions options = job.options;
  options.ranks = shape.copies();
  const cost::StepModel model = cost::make_step_model(std::move(part), options);
  const auto strategy = cost::parse_strategy(job.strategy, "--strategy");
  std::vector<cost::UnitChoice> choices;
  for (int unit = 0; unit < model.units(); ++unit)
    choices.push_back(simulate::nearest_choice(model, unit, {strategy, job.checkpoint}));
  const auto step =
      simulate::simulate_step(model, plan::prefetch_schedule(model, choices, job.prefetch), UINT64_MAX);
  return {{"step_ms", step.step_s * 1e3},
          {"exposed_comm_ms", step.exposed_s * 1e3},
          {"compute_ms", step.compute_s * 1e3},
          {"peak_bytes", step.peak_bytes},
          {"idle_share", step.exposed_s / step.step_s}};
}

// The layer with which each stage begins.
std::vector<int> balanced(const simulate::PipelineCosts& costs, int stages) {
  std::vector<pipeline::UnitCost> units;
  for (const simulate::LayerCost& layer : costs.layers()) {
    units.push_back({layer.forward_s + layer.backward_s,
                     layer.parameter_bytes + layer.gradient_bytes + layer.optimizer_bytes,
                     layer.activation_bytes});
  }
  return pipeline::balanced_cuts(units, stages);
}

Json simulate_pipelines(const cost::Profile& profile, const SimulatedMesh& job,
                        const simulate::MeshLinks& links, bool draws) {
  const int micro_batches = job.micro_batches;
  const simulate::PipelineCosts costs(profile, shape_of(profile, job), links, micro_batches);
  simulate::PipelineChoice choice;
  choice.schedule = job.schedule;
  choice.micro_batches = micro_batches;
  choice.chunks = job.chunks;
  const int ranks = costs.shape().pipeline;
  choice.first = balanced(costs, ranks * pipeline::stages_per_rank(job.schedule, job.chunks));
  choice.strategies.assign(static_cast<std::size_t>(ranks), cost::parse_strategy(job.strategy, "--strategy"));
  for (const simulate::LayerCost& layer : costs.layers())
    choice.checkpointed.push_back(job.checkpoint &&
                                  layer.checkpointed_activation_bytes < layer.activation_bytes);
  const simulate::PipelineForecast step = costs.forecast(choice);
  if (draws) std::printf("%s\n", draw(step.schedule, step.timeline).c_str());
  if (!job.svg.empty()) write_output(job.svg, to_svg(step.schedule, step.timeline));
  double busy = 0, exposed = 0;
  for (const simulate::PipelineRank& rank : step.ranks) {
    busy = std::max(busy, rank.busy_s + rank.update_s);
    exposed = std::max(exposed, rank.exposed_s + rank.idle_s);
  }
  return {{"step_ms", step.step_s * 1e3},    {"exposed_comm_ms", exposed * 1e3},
          {"compute_ms", busy * 1e3},        {"peak_bytes", step.peak_bytes},
          {"idle_share", step.idle_share()}, {"bubble", step.timeline.bubble()},
          {"schedule", step.schedule.name},  {"peak_activations", peak_activations(step.schedule)}};
}

}  // namespace

Json simulate_mesh(const cost::Profile& profile, const SimulatedMesh& job, bool draws) {
  const simulate::MeshLinks links = links_of(profile, job);
  Json json = size_along(job.mesh, "pipeline") > 1 ? simulate_pipelines(profile, job, links, draws)
                                                   : simulate_along_data(profile, job, links);
  json["ranks"] = job.options.ranks;
  json["mesh"] = to_string(job.mesh);
  json["topology"] = job.topology.empty() ? "profile" : job.topology;
  json["samples_per_s"] = static_cast<double>(profile.batch_size) * replicas_of(job.mesh) *
                          job.options.micro_batches / (json["step_ms"].get<double>() * 1e-3);
  return json;
}

}  // namespace rondo
