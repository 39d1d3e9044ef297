// One rank of `bench/mesh_prediction.py --emulate`: plans of meshes compared with training that follows them,
// on emulated accelerators.
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>

#include "apps/bench/commands.h"
#include "apps/bench/dev/emulated_accelerator.h"
#include "apps/bench/harness/benchmark.h"
#include "rondo/backend/collectives.h"
#include "rondo/backend/context.h"
#include "rondo/backend/memory/tracked_memory.h"
#include "rondo/base/arithmetic.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/memory/tracker.h"
#include "rondo/nn/unit.h"
#include "rondo/parallel/declared_strategies_options.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/strategy_on_mesh.h"
#include "rondo/plan/mesh/mesh_plan.h"
#include "rondo/profile/plan_of_profile.h"
#include "rondo/train/agreement.h"

namespace rondo::bench {
namespace {

constexpr std::int64_t kPlannedWidth = 16384;
constexpr std::size_t kUnsettledSteps = 3;

struct PlanStudyOptions {
  std::vector<std::string> meshes;
  double sample_ms = 1;  // forward of a unit; each gradient takes as long
  int units = 8;
  std::int64_t batch_size = 4;  // per rank, if all ranks were along data
  int steps = 12;
};

struct EmulatedBlockImpl : torch::nn::Module {
  explicit EmulatedBlockImpl(Duration of_sample) : time(of_sample) {
    weight = register_parameter("weight", torch::zeros({kPlannedWidth}));
  }
  at::Tensor forward(const at::Tensor& values) {
    const Duration all = time * values.size(0);
    return emulated_unit(values, weight, {all, all, all});
  }
  Duration time;
  at::Tensor weight;
};
TORCH_MODULE(EmulatedBlock);

class PlanStudy {
 public:
  explicit PlanStudy(const PlanStudyOptions& options) : options_(options), context_(init()) {
    JobProfileOptions profile;
    profile.model.optimizer = plan_options_.optimizer;
    profile.make_model = [this] { return make(); };
    profile.link.messages = true;
    profile.link.largest = MiB(1);
    profile_ = profile_job(context_, make(), batch_of(options_.batch_size), profile, "emulated");
  }

  bool is_first() const { return context_.rank() == 0; }

  Json run(const std::string& mesh) {
    std::string text;
    run_agreed(context_, [&] {
      if (context_.rank() != 0) return;
      plan::MeshSearch search;
      search.refusal = [](const Mesh& each) { return mesh_refusal(each, "planned"); };
      search.samples = static_cast<std::uint64_t>(options_.batch_size * context_.world_size());
      if (mesh != "all") search.mesh = parse_mesh(mesh, "--mesh");
      text = mesh_plan_of_profile(profile_, context_.world_size(), GiB(64), plan_options_, search, "64GiB")
                 .dump();
    });
    PlanOnMesh plan;
    plan.text = broadcast_object(text, context_.world()).get<std::string>();
    const Json json = parse_json_strict(plan.text, "plan");
    plan.step = cost::parse_step_plan(json, "plan");
    plan.mesh = mesh_of_plan(plan.step, context_.world_size());
    const Measured measured = train(plan);
    return {{"asked", mesh},
            {"mesh", json.at("mesh")},
            {"plan", json.value("pipeline", Json::object())},
            {"predicted",
             {{"step_ms", json.at("step_ms")},
              {"peak_bytes", json.at("peak_bytes")},
              {"base_bytes", profile_.base_bytes},
              {"engine_bytes", profile_.engine_bytes}}},
            {"measured",
             {{"step_ms", measured.step_ms},
              {"peak_bytes", measured.peak_bytes},
              {"peak_of_first_rank", measured.parts}}}};
  }

 private:
  struct Measured {
    double step_ms = 0;
    std::uint64_t peak_bytes = 0;
    Json parts = Json::object();  // this rank's peak by category
  };

  Model make() const {
    torch::nn::Sequential layers;
    for (int unit = 0; unit < options_.units; ++unit)
      layers->push_back(str("unit", unit), Unit<EmulatedBlock>(equal_times(options_.sample_ms).forward));
    return emulated_model(layers);
  }

  static Batch batch_of(std::int64_t samples) {
    Batch batch{{torch::ones({samples, kPlannedWidth})}, {torch::zeros({samples}, torch::kLong)}};
    batch.samples = samples;
    return batch;
  }

  Measured train(const PlanOnMesh& plan) {
    replica_memory_tracker().reset_peak();
    const Context meshed = context_.mesh(plan.mesh);
    const StrategyRegistry strategies = with_plan(all_strategies(), plan.text_along_data(meshed));
    const auto values_of = [&](const std::string& strategy) {
      return strategy == "pipeline" ? plan.pipeline_options() : OptionValues();
    };
    const std::unique_ptr<Strategy> strategy =
        plan.mesh.size() > 1 ? rondo::strategy_on_mesh(strategies, plan.strategy_on_mesh(), meshed, values_of)
                             : strategies.make("planned", meshed, OptionValues());
    const std::unique_ptr<Training> training = strategy->prepare(
        {.model =
             [&] {
               Model model = make();
               plan.checkpoint_units(*model.module);
               return model;
             },
         .optimizer =
             [&](torch::nn::Module& module) { return make_optimizer(plan_options_.optimizer, module); }});
    const Batch batch = batch_of(static_cast<std::int64_t>(plan.step.schedule->batch_size));
    std::vector<double> step_ms;
    for (int step = 0; step < options_.steps; ++step) {
      const TimePoint begin = Clock::now();
      training->train_step({&batch, 1}, {.step = step});
      step_ms.push_back(milliseconds(Clock::now() - begin));
    }
    at::Tensor largest = at::tensor({median({step_ms.begin() + kUnsettledSteps, step_ms.end()}),
                                     static_cast<double>(replica_memory_tracker().peak_total())},
                                    at::kDouble);
    all_reduce(largest, context_.world(), ReduceOp::MAX);
    Measured measured{largest[0].item<double>(), static_cast<std::uint64_t>(largest[1].item<double>())};
    const MemoryUsage at_peak = replica_memory_tracker().peak().usage;
    for (std::size_t i = 0; i < kMemoryCategories; ++i)
      measured.parts[std::string(to_string(static_cast<MemoryCategory>(i)))] = at_peak.categories[i];
    return measured;
  }

  const PlanStudyOptions options_;
  const PlanForOptions plan_options_ = {.time_limit = std::chrono::seconds(2)};
  Context context_;
  cost::Profile profile_;
};

int run_plan_worker(const PlanStudyOptions& options) {
  track_cpu_allocations();
  at::set_num_threads(1);
  PlanStudy study(options);
  for (const std::string& mesh : options.meshes) {
    const Json row = study.run(mesh);
    if (study.is_first()) std::cout << row.dump() << std::endl;
  }
  return 0;
}

}  // namespace

Command add_plan_worker(CLI::App& app) {
  const auto options = std::make_shared<PlanStudyOptions>();
  CLI::App* command = app.add_subcommand("plan-worker", "One rank of bench/mesh_prediction.py")->group("");
  command->add_option("--mesh", options->meshes, "or all: the planner chooses")->required();
  command->add_option("--sample-ms", options->sample_ms);
  command->add_option("--units", options->units);
  command->add_option("--batch-size", options->batch_size);
  command->add_option("--steps", options->steps)->check(rondo::between(4, 1000));
  return {command, [options] { return run_plan_worker(*options); }};
}

}  // namespace rondo::bench
