// `rondo simulate`: predicts a training step without running one.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/plan/answer.h"
#include "apps/plan/inputs.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/cost/profile.h"
#include "rondo/cost/step_model.h"
#include "rondo/env/mesh.h"
#include "rondo/pipeline/drawing.h"
#include "rondo/pipeline/stage_cuts.h"
#include "rondo/plan/mesh/mesh_plan.h"
#include "rondo/plan/plan_file.h"
#include "rondo/plan/schedule/schedules.h"
#include "rondo/simulate/closed_forms.h"
#include "rondo/simulate/cluster.h"
#include "rondo/simulate/mesh_step.h"
#include "rondo/simulate/step_simulator.h"

namespace rondo {

// The flags of a step on a mesh. The profile's batch is per replica and pass.
struct SimulatedMesh {
  Mesh mesh;
  cost::StepOptions options;
  int micro_batches = 1;  // micro-batches of a pipeline
  std::string strategy;   // along data, for all units
  bool checkpoint = false;
  int prefetch = 1;
  std::string schedule = "1f1b";
  int chunks = 2;
  std::string topology = {};  // empty: the profile's link between any two ranks
  std::string algorithm = "auto";
  std::string svg = {};  // path of a picture of the pipeline's schedule
};

// Returns the result of `rondo simulate --mesh`. Balances stages by time. Throws UsageError for a mesh that
// does not suit the model or the profile.
nlohmann::ordered_json simulate_mesh(const cost::Profile& profile, const SimulatedMesh& job, bool draws);

namespace {

using Json = nlohmann::ordered_json;

// Returns the link of a dimension as a network of its own. Ranks along tensor are adjacent. Ranks along data
// are `stride` apart, so fewer of them share a host.
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
  // Returns the costs of a message to the rank `stride` positions later.
  const auto message = [&](int stride) {
    const simulate::Wire& wire = stride < all.local_ranks ? all.inside : all.between;
    const auto point = [&](std::uint64_t bytes) {
      return cost::CostPoint{bytes, wire.latency_s + static_cast<double>(bytes) / wire.bytes_per_s};
    };
    return cost::CostCurve({point(1), point(1 << 30)}, "send_recv");
  };
  links.pipeline.send_recv = message(shape.copies() * shape.tensor);
  // The longest message of the ring is between the last and the first rank.
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

// Returns the first layer of each stage.
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

namespace {

using Json = nlohmann::ordered_json;
using rondo::str;
using rondo::UsageError;

struct Flags {
  rondo::PlanningInputs inputs;
  std::string plan;
  std::string strategy = "zero3";
  bool checkpoint = false;
  int prefetch = 1;
  std::string memory_limit;
  std::string mesh;
  std::string topology;
  std::string algorithm = "auto";
  rondo::simulate::Stragglers stragglers;
  std::string mean_time_between_failures;
  std::string checkpoint_time = "30s";
  std::string restart_time = "60s";
  rondo::simulate::PipelineSettings pipeline;
  std::string message_time = "0s";
  std::string svg;
  rondo::simulate::ParameterServerSettings servers;
  bool timeline = false;
  std::string json;
};

void add_flags(CLI::App& app, Flags& f) {
  add_planning_flags(app, f.inputs);
  const std::string plan = "Plan";
  CLI::Option* const file =
      app.add_option("--plan", f.plan,
                     "a plan file of 'rondo plan --plan-out', for the same profile and flags")
          ->type_name("FILE")
          ->check(rondo::existing_path())
          ->group(plan);
  app.add_option("--strategy", f.strategy,
                 "strategy of all units, instead of a plan: ddp, zero1, zero2, zero3 (default), zero3_keep, "
                 "pipeline, parameter_server")
      ->type_name("NAME")
      ->excludes(file)
      ->group(plan);
  app.add_flag("--activation-checkpointing", f.checkpoint, "use activation checkpointing")
      ->excludes(file)
      ->group(plan);
  app.add_option("--prefetch", f.prefetch, "slots that a gather starts ahead of its use; default 1")
      ->type_name("N")
      ->check(rondo::positive_number())
      ->excludes(file)
      ->group(plan);
  app.add_option("--memory-limit", f.memory_limit,
                 "memory limit of a rank; computation waits instead of exceeding it")
      ->type_name("SIZE")
      ->group(plan);
  const std::string cluster = "Cluster";
  app.add_option("--mesh", f.mesh,
                 "ranks per mesh dimension, such as pipeline=8,data=4,tensor=8; the profile's batch is that "
                 "of a replica")
      ->type_name("MESH")
      ->group(cluster);
  app.add_option("--topology", f.topology,
                 "network instead of the profile's link: host, fat_tree, torus_2d, torus_3d, slow_groups, "
                 "with :local=8,inside=200e9,between=25e9,inside_latency=2us,between_latency=10us")
      ->type_name("NET")
      ->group(cluster);
  app.add_option("--algorithm", f.algorithm,
                 "algorithm of collectives on --topology; auto (default): the fastest by size")
      ->type_name("NAME")
      ->group(cluster);
  app.add_option("--jitter", f.stragglers.jitter, "random slowdown of each slot, up to this fraction")
      ->type_name("SHARE")
      ->check(rondo::not_negative_number())
      ->group(cluster);
  app.add_option("--slow-ranks", f.stragglers.slow_ranks, "number of ranks slowed down by --slow-factor")
      ->type_name("N")
      ->check(rondo::not_negative_number())
      ->group(cluster);
  app.add_option("--slow-factor", f.stragglers.slow_factor, "slowdown factor of --slow-ranks, at least 1")
      ->type_name("X")
      ->check(rondo::between(1.0, 1e6))
      ->group(cluster);
  app.add_option("--seed", f.stragglers.seed, "seed of --jitter and of failures")
      ->type_name("N")
      ->check(rondo::not_negative_number())
      ->group(cluster);
  app.add_option("--mtbf", f.mean_time_between_failures,
                 "mean time between failures of one rank, as in 1000h")
      ->type_name("TIME")
      ->group(cluster);
  app.add_option("--checkpoint-time", f.checkpoint_time,
                 "time that a checkpoint pauses training; default 30s")
      ->type_name("TIME")
      ->group(cluster);
  app.add_option("--restart-time", f.restart_time, "time from a failure until training resumes; default 60s")
      ->type_name("TIME")
      ->group(cluster);
  const std::string pipeline = "Pipeline";
  app.add_option("--stages", f.pipeline.stages, "stages of --strategy pipeline")
      ->type_name("N")
      ->check(rondo::positive_number())
      ->group(pipeline);
  app.add_option("--pipeline-schedule", f.pipeline.schedule,
                 "gpipe, 1f1b (default), interleaved, zb_h1 or zb_v")
      ->type_name("NAME")
      ->group(pipeline);
  app.add_option("--pipeline-chunks", f.pipeline.chunks, "interleaved: model chunks per rank; default 2")
      ->type_name("N")
      ->check(rondo::positive_number())
      ->group(pipeline);
  app.add_option("--message-time", f.message_time,
                 "transfer time of a micro-batch's activations between stages, such as 2ms; default 0s")
      ->type_name("TIME")
      ->group(pipeline);
  app.add_option("--svg", f.svg, "write a drawing of the pipeline's schedule")
      ->type_name("FILE")
      ->group(pipeline);
  const std::string closed = "Parameter server";
  app.add_option("--servers", f.servers.servers, "servers of --strategy parameter_server")
      ->type_name("N")
      ->check(rondo::positive_number())
      ->group(closed);
  app.add_option("--server-rate", f.servers.server_bytes_per_s, "bytes/s of a server's link")
      ->type_name("X")
      ->check(rondo::positive_number())
      ->group(closed);
  app.add_option("--worker-rate", f.servers.worker_bytes_per_s, "bytes/s of a worker's link")
      ->type_name("X")
      ->check(rondo::positive_number())
      ->group(closed);
  app.add_flag("--timeline", f.timeline, "include every slot and segment in the JSON");
  app.add_option("--json", f.json, "write the result as JSON; '-': to standard output")->type_name("FILE");
}

void add_failures(const Flags& f, Json& json) {
  if (f.mean_time_between_failures.empty()) return;
  const rondo::simulate::FailureModel model{
      rondo::seconds(rondo::parse_duration(f.mean_time_between_failures, "--mtbf")), f.inputs.options.ranks,
      rondo::seconds(rondo::parse_duration(f.checkpoint_time, "--checkpoint-time")),
      rondo::seconds(rondo::parse_duration(f.restart_time, "--restart-time"))};
  if (model.mean_time_between_failures_s <= 0 || model.checkpoint_s <= 0)
    throw UsageError("--mtbf and --checkpoint-time must be positive");
  const double interval = rondo::simulate::daly_interval_s(model);
  if (interval + model.checkpoint_s > 20 * model.job_mean_time_s()) {
    throw UsageError(str("--mtbf ", f.mean_time_between_failures, ": ", model.ranks, " ranks fail every ",
                         model.job_mean_time_s(), " s, too often for a checkpoint of ", f.checkpoint_time));
  }
  const double useful = std::max(1000 * interval, 100 * model.job_mean_time_s());
  json["failures"] = {
      {"job_mtbf_s", model.job_mean_time_s()},
      {"young_interval_s", rondo::simulate::young_interval_s(model)},
      {"daly_interval_s", interval},
      {"steps_between_checkpoints", interval * 1e3 / json["step_ms"].get<double>()},
      {"goodput", rondo::simulate::expected_goodput(model, interval)},
      {"simulated_goodput", rondo::simulate::simulated_goodput(model, interval, useful, f.stragglers.seed)}};
}

std::string four_digits(double number, const char* unit) {
  char text[64];
  std::snprintf(text, sizeof text, "%.4g%s", number, unit);
  return text;
}

// Returns a number with its unit, from the suffix of its JSON key.
std::string readable(const std::string& key, const Json& value) {
  if (value.is_string()) return rondo::shown(value.get<std::string>());
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (!value.is_number()) return rondo::shown(value.dump());
  if (key.ends_with("_bytes")) return to_string(rondo::Bytes{value.get<std::uint64_t>()});
  const double number = value.get<double>();
  if (key.ends_with("_ms")) return four_digits(number, " ms");
  if (key.ends_with("_s")) return four_digits(number, " s");
  if (key.ends_with("_share") || key.ends_with("goodput")) return four_digits(100 * number, " %");
  return value.is_number_integer() ? value.dump() : four_digits(number, "");
}

// Returns the label of a JSON key: "step" for "step_ms", "peak" for "peak_bytes".
std::string label_of(std::string key) {
  for (const std::string_view unit : {"_bytes", "_ms", "_s"}) {
    if (key.ends_with(unit)) {
      key.resize(key.size() - unit.size());
      break;
    }
  }
  std::replace(key.begin(), key.end(), '_', ' ');
  return key;
}

void print(const Json& json) {
  for (const auto& [key, value] : json.items()) {
    if (key == "slots" || key == "segments" || (value.is_array() && value.empty())) continue;
    if (value.is_object()) {
      print(value);
      continue;
    }
    std::printf("%-26s %s\n", label_of(key).c_str(), readable(key, value).c_str());
  }
}

Json simulate_pipeline(Flags& f, const rondo::cost::Profile& profile) {
  f.pipeline.micro_batches = std::max(1, f.inputs.micro_batches);
  f.pipeline.passes = f.inputs.options.micro_batches;
  f.pipeline.message_s = rondo::seconds(rondo::parse_duration(f.message_time, "--message-time"));
  const rondo::simulate::PipelineStep step = pipeline_step(profile, f.pipeline);
  if (f.json != "-") std::printf("%s\n", draw(step.schedule, step.timeline).c_str());
  if (!f.svg.empty()) rondo::write_output(f.svg, to_svg(step.schedule, step.timeline));
  Json json{{"step_ms", step.step_s * 1e3},   {"exposed_comm_ms", step.idle_share * step.step_s * 1e3},
            {"peak_bytes", step.peak_bytes},  {"ranks", f.pipeline.stages},
            {"topology", "pipeline"},         {"idle_share", step.idle_share},
            {"schedule", step.schedule.name}, {"peak_activations", peak_activations(step.schedule)}};
  if (f.timeline) json["actions"] = rondo::split(to_text(step.schedule), '\n');
  return json;
}

Json simulate_on_mesh(const Flags& f, const rondo::cost::Profile& profile) {
  if (!f.plan.empty() || !f.memory_limit.empty() || f.stragglers.jitter > 0 || f.stragglers.slow_ranks > 0)
    throw UsageError(
        "--plan, --memory-limit, --jitter and --slow-ranks apply to dimension data only: leave out --mesh");
  rondo::SimulatedMesh job;
  job.options = step_options(f.inputs);
  job.mesh = ordered_mesh(rondo::parse_mesh(f.mesh, "--mesh"), job.options.ranks);
  job.strategy = f.strategy;
  job.checkpoint = f.checkpoint;
  job.prefetch = f.prefetch;
  job.schedule = f.pipeline.schedule;
  job.chunks = f.pipeline.chunks;
  job.topology = f.topology;
  job.algorithm = f.algorithm;
  job.micro_batches = std::max(1, f.inputs.micro_batches);
  job.svg = f.svg;
  return simulate_mesh(profile, job, f.json != "-");
}

Json closed_form(Flags& f, const rondo::cost::Profile& profile) {
  f.servers.workers = f.inputs.options.ranks;
  const rondo::simulate::ClosedForm result = parameter_server_step(profile, f.servers);
  return {{"step_ms", result.step_s * 1e3},  {"exposed_comm_ms", result.idle_share * result.step_s * 1e3},
          {"peak_bytes", result.peak_bytes}, {"ranks", f.inputs.options.ranks},
          {"topology", "closed form"},       {"idle_share", result.idle_share}};
}

Json simulate_step(const Flags& f, const rondo::cost::Profile& profile) {
  const auto options = step_options(f.inputs);
  const auto model = rondo::cost::make_step_model(profile, options);
  const std::uint64_t limit =
      f.memory_limit.empty() ? UINT64_MAX : rondo::parse_bytes(f.memory_limit, "--memory-limit").count;
  rondo::simulate::Candidate plan;
  if (!f.plan.empty()) {
    plan = rondo::plan::plan_from_json(model, rondo::read_json_file(f.plan), f.plan);
  } else {
    const auto strategy = rondo::cost::parse_strategy(f.strategy, "--strategy");
    std::vector<rondo::cost::UnitChoice> choices;
    for (int unit = 0; unit < model.units(); ++unit)
      choices.push_back(rondo::simulate::nearest_choice(model, unit, {strategy, f.checkpoint}));
    plan = rondo::plan::prefetch_schedule(model, choices, f.prefetch);
  }
  rondo::simulate::Timeline timeline;
  const auto one = rondo::simulate::simulate_step(model, plan, limit, &timeline);
  const auto all = rondo::simulate::simulate_cluster(model, plan, limit, f.stragglers);
  Json json{{"step_ms", all.step_s * 1e3},
            {"exposed_comm_ms", all.exposed_s * 1e3},
            {"peak_bytes", all.peak_bytes},
            {"ranks", options.ranks},
            {"topology", f.topology.empty() ? "profile" : f.topology},
            {"compute_ms", one.compute_s * 1e3},
            {"comm_ms", one.communication_s * 1e3},
            {"equal_ranks_step_ms", one.step_s * 1e3},
            {"mean_wait_ms", all.mean_wait_s * 1e3},
            {"fits", one.fits},
            {"notes", model.notes}};
  if (f.timeline) json.update(rondo::timeline_to_json(model, timeline));
  return json;
}

int run(Flags& f) {
  const auto begin = rondo::Clock::now();
  rondo::cost::Profile profile = load_profile(f.inputs);
  const bool has_stages = f.mesh.empty() ? f.strategy == "pipeline"
                                         : size_along(rondo::parse_mesh(f.mesh, "--mesh"), "pipeline") > 1;
  if (f.inputs.micro_batches > 0 && !has_stages)
    throw UsageError(
        "--micro-batches needs a pipeline; use --gradient-accumulation-steps for several passes per step");
  if (!f.topology.empty() && f.mesh.empty()) {
    const auto topology = rondo::simulate::parse_topology(f.topology, f.inputs.options.ranks);
    profile.link = rondo::simulate::link_of(topology, f.algorithm, profile.link.contention);
  } else if (f.topology.empty() && f.algorithm != "auto") {
    throw UsageError("--algorithm needs --topology, because a profile holds the times of its own algorithms");
  }
  Json json = !f.mesh.empty()                    ? simulate_on_mesh(f, profile)
              : f.strategy == "pipeline"         ? simulate_pipeline(f, profile)
              : f.strategy == "parameter_server" ? closed_form(f, profile)
                                                 : simulate_step(f, profile);
  add_failures(f, json);
  json["wall_s"] = rondo::seconds(rondo::Clock::now() - begin);
  if (f.json != "-") print(json);
  rondo::write_json(f.json, json);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Predict a training step: time, exposed communication and memory, on 1 to 16,384 ranks.",
               "rondo simulate");
  Flags flags;
  add_flags(app, flags);
  app.footer(
      "Examples:\n"
      "  rondo simulate profile.json --ranks 2 --plan plan.json\n"
      "  rondo simulate profile.json --ranks 2 --strategy zero2 --memory-limit 2GiB\n"
      "  rondo simulate --synthetic gpt:layers=48,dim=4096 --ranks 1024 --topology fat_tree --jitter 0.05\n"
      "  rondo simulate --synthetic gpt:layers=48,dim=4096 --ranks 16384 --topology torus_3d --mtbf 50000h\n"
      "  rondo simulate --synthetic gpt:layers=48,dim=4096,batch=32 --ranks 64 --mesh "
      "pipeline=4,data=2,tensor=8 "
      "--micro-batches 32\n"
      "  rondo simulate --synthetic gpt:layers=48,dim=4096 --strategy pipeline --stages 8 --micro-batches "
      "32");
  return rondo::run_command_line(app, argc, argv, [&] { return run(flags); });
}
