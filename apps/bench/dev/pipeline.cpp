// `rondo bench-dev pipeline`: steps of pipelines compared with their simulation, with PyTorch's, and between
// hosts with ddp's.
#include <cstdio>
#include <limits>

#include "apps/bench/commands.h"
#include "apps/bench/harness/benchmark.h"
#include "apps/bench/harness/rank.h"
#include "apps/common/matmul_setup.h"
#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/pipeline/simulation.h"

namespace rondo::bench {
namespace {

namespace fs = std::filesystem;
using pipeline::ActionKind;

constexpr int kEmulatedUnitsOfRank = 2;  // zb_v and interleaved have two stages

// Goals for gpt-25m, and for emulated stages of equal times.
constexpr double kMostIdle = 1.15;         // measured bubble as a multiple of the simulated one ...
constexpr double kIdleAllowance = 0.01;    // ... plus this share of the step
constexpr double kOverPeer = 1.2;          // minimum tokens per second, relative to PyTorch's
constexpr double kZeroBubble = 0.35;       // maximum idle time of zb_v, relative to that of 1f1b
constexpr double kMostBetweenHosts = 1.1;  // maximum step time, relative to computation and bubble
// Minimum tokens per second relative to those of ddp between two hosts, by the link's bits per second.
constexpr std::pair<double, double> kOverDdp[] = {{1e9, 0.95}, {4e8, 1.3}};

struct PipelineFlags {
  std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"};
  std::string model = "gpt-25m";
  int ranks = 2;
  int micro_batches = 8;
  std::int64_t batch_size = 8;
  double emulated_unit_ms = 0;
  Network network = {.rate = "1gbit"};
  std::string matmul = "auto";
  bool peers = false;
  Turns turns = {.warm_up = 2, .rounds = 4, .steps = 4};

  bool is_emulated() const { return emulated_unit_ms > 0; }
};

// One step's schedule on all ranks as measured, and as simulated with the measured times of each stage and
// free messages.
struct Bubble {
  double schedule_s = 0;            // from the start of the first computation to the end of the last
  std::vector<double> idle_s = {};  // by rank
  std::vector<pipeline::StageTimes> times = {};  // by stage: means over micro-batches
  std::vector<double> simulated_idle_s = {};     // by rank
};

// `ranks`: the computations of each rank, with times of a common clock. Throws Error if a rank's computations
// differ from its schedule.
Bubble bubble_of(const pipeline::Schedule& schedule, const std::vector<std::vector<pipeline::Slot>>& ranks) {
  Bubble bubble;
  bubble.times.assign(schedule.rank_of_stage.size(), {0, 0, 0, 0});
  double first = std::numeric_limits<double>::infinity(), last = 0;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto computations = std::count_if(
        schedule.actions[rank].begin(), schedule.actions[rank].end(),
        [](const pipeline::Action& action) { return action.kind <= ActionKind::backward_weight; });
    if (ranks[rank].size() != static_cast<std::size_t>(computations)) {
      throw Error(str("rank ", rank, " computed ", ranks[rank].size(), " times in a step of schedule ",
                      schedule.name, ", not ", computations));
    }
    double busy = 0;
    for (const pipeline::Slot& slot : ranks[rank]) {
      const double elapsed = slot.end_s - slot.begin_s;
      busy += elapsed;
      pipeline::StageTimes& times = bubble.times[static_cast<std::size_t>(slot.action.stage)];
      // An unsplit backward pass has one time: the simulation adds both parts.
      (slot.action.kind == ActionKind::forward           ? times.forward_s
       : slot.action.kind == ActionKind::backward_weight ? times.backward_weight_s
                                                         : times.backward_input_s) += elapsed;
      first = std::min(first, slot.begin_s);
      last = std::max(last, slot.end_s);
    }
    bubble.idle_s.push_back(-busy);
  }
  bubble.schedule_s = last - first;
  for (double& idle : bubble.idle_s) idle += bubble.schedule_s;
  for (pipeline::StageTimes& times : bubble.times) {
    for (double* const time : {&times.forward_s, &times.backward_input_s, &times.backward_weight_s})
      *time /= schedule.micro_batches;
  }
  bubble.simulated_idle_s = simulate(schedule, bubble.times).idle_s;
  return bubble;
}

// A measured system with the steps that count.
struct PipelineContestant {
  std::string system = {};    // rondo, pytorch
  std::string schedule = {};  // empty for ddp
  std::shared_ptr<Fleet> fleet = {};
  std::vector<double> step_ms = {};  // on the slowest rank
  std::vector<Bubble> bubbles = {};  // rondo's pipelines, by step
  double last_loss = 0;
  std::uint64_t peak_rss_bytes = 0;  // highest of any rank
  std::string matmul = "libtorch";   // kernels for float32 matrix products

  // Returns "rondo 1f1b" or "rondo ddp".
  std::string title() const { return system + " " + (schedule.empty() ? "ddp" : schedule); }

  // Returns medians over the steps, in milliseconds, of a value for each of `count` ranks or stages.
  template <class Figure>
  std::vector<double> medians_ms(std::size_t count, Figure figure) const {
    std::vector<double> result;
    for (std::size_t i = 0; i < count; ++i) {
      std::vector<double> values;
      for (const Bubble& bubble : bubbles) values.push_back(figure(bubble, i) * 1e3);
      result.push_back(median(values));
    }
    return result;
  }
  std::vector<double> idle_ms(std::vector<double> Bubble::*idle = &Bubble::idle_s) const {
    return medians_ms(bubbles.front().idle_s.size(),
                      [idle](const Bubble& bubble, std::size_t rank) { return (bubble.*idle)[rank]; });
  }
  double longest_idle_ms(std::vector<double> Bubble::*idle = &Bubble::idle_s) const {
    const std::vector<double> of_ranks = idle_ms(idle);
    return *std::max_element(of_ranks.begin(), of_ranks.end());
  }
};

// Makes all ranks take `steps` steps. With `counts` adds the results of all steps to the contestant's, except
// the first of several, whose caches are cold.
void take_steps(PipelineContestant& contestant, int micro_batches, int steps, bool counts) {
  const std::size_t ranks = contestant.fleet->workers.size();
  const std::vector<nlohmann::json> answers = contestant.fleet->ask(str("run ", steps), ranks);
  for (const nlohmann::json& answer : answers) {
    contestant.peak_rss_bytes =
        std::max(contestant.peak_rss_bytes, answer.at("peak_rss_bytes").get<std::uint64_t>());
    contestant.matmul = answer.value("matmul", contestant.matmul);
    // In PyTorch only the last stage's rank has the loss.
    const double loss = answer.at("losses").back();
    if (loss != 0) contestant.last_loss = loss;
  }
  const bool is_pipeline = contestant.system == "rondo" && !contestant.schedule.empty();
  for (int step = steps > 1 ? 1 : 0; counts && step < steps; ++step) {
    const auto at = static_cast<std::size_t>(step);
    double slowest = 0;
    std::vector<std::vector<pipeline::Slot>> slots;
    for (const nlohmann::json& answer : answers) {
      slowest = std::max(slowest, answer.at("step_ms").at(at).get<double>());
      if (!is_pipeline) continue;
      slots.emplace_back();
      for (const nlohmann::json& slot : answer.at("slots").at(at)) {
        slots.back().push_back({{static_cast<ActionKind>(slot.at(0).get<int>()), slot.at(1), slot.at(2)},
                                slot.at(3),
                                slot.at(4)});
      }
    }
    contestant.step_ms.push_back(slowest);
    if (!is_pipeline) continue;
    const pipeline::Schedule schedule =
        pipeline::make_schedule(contestant.schedule, static_cast<int>(ranks), micro_batches);
    contestant.bubbles.push_back(bubble_of(schedule, slots));
  }
}

// The rows of one run: each contestant's rows, then ratios.
class PipelineRows {
 public:
  PipelineRows(const PipelineFlags& flags, const StepCase& training,
               const std::vector<PipelineContestant>& contestants)
      : flags_(flags), training_(training), contestants_(contestants) {}

  Json take() {
    for (const PipelineContestant& contestant : contestants_) describe(contestant);
    for (const PipelineContestant& contestant : contestants_) {
      if (contestant.bubbles.empty()) continue;
      compare_to_simulation(contestant);
      compare_to_others(contestant);
    }
    // Across schedules: the best of each system.
    const PipelineContestant *const ours = fastest_of("rondo"), *const peers = fastest_of("pytorch");
    if (ours != nullptr && peers != nullptr && ours->schedule != peers->schedule)
      compare_speed(*ours, *peers, kOverPeer);
    return std::move(rows_);
  }

 private:
  void describe(const PipelineContestant& contestant) {
    const RepeatedTime step = repeated(contestant.step_ms);
    const bool is_ddp = contestant.schedule.empty();
    const Network& network = flags_.network;
    Json row{{"system", contestant.system},
             {"strategy", is_ddp ? "ddp" : "pipeline"},
             {"schedule", is_ddp ? Json(nullptr) : Json(contestant.schedule)},
             {"model", flags_.is_emulated() ? "emulated" : training_.model},
             {"emulated", flags_.is_emulated()},
             {"ranks", flags_.ranks},
             {"hosts", network.hosts},
             {"rate", network.hosts > 1 ? Json(network.rate) : Json(nullptr)},
             {"matmul", flags_.is_emulated() ? Json(nullptr) : Json(contestant.matmul)},
             {"micro_batches", flags_.micro_batches},
             {"batch_size", training_.batch_size},
             {"steps", contestant.step_ms.size()},
             {"step_ms_p50", step.p50},
             {"step_ms_min", step.min},
             {training_.throughput(), static_cast<double>(training_.items()) / step.p50 * 1e3},
             {"peak_rss_bytes", contestant.peak_rss_bytes},
             {"final_loss", contestant.last_loss}};
    if (!contestant.bubbles.empty()) {
      const std::size_t stages = contestant.bubbles.front().times.size();
      const auto of_stage = [&](double pipeline::StageTimes::*time) {
        return contestant.medians_ms(
            stages, [time](const Bubble& bubble, std::size_t stage) { return bubble.times[stage].*time; });
      };
      const auto length = [](const Bubble& bubble, std::size_t) { return bubble.schedule_s; };
      row["schedule_ms"] = contestant.medians_ms(1, length).front();
      row["idle_ms"] = contestant.idle_ms();
      row["simulated_idle_ms"] = contestant.idle_ms(&Bubble::simulated_idle_s);
      row["forward_ms"] = of_stage(&pipeline::StageTimes::forward_s);
      row["input_gradient_ms"] = of_stage(&pipeline::StageTimes::backward_input_s);
      row["weight_gradient_ms"] = of_stage(&pipeline::StageTimes::backward_weight_s);
    }
    rows_.push_back(std::move(row));
  }

  void add(Ratio ratio) {
    if (!flags_.is_emulated() && training_.model != "gpt-25m") ratio.goal.reset();
    rows_.push_back(ratio_row(ratio));
  }

  // Compares the longest idle time of a rank with the simulated one.
  void compare_to_simulation(const PipelineContestant& ours) {
    const double step = median(ours.step_ms);
    const double idle = ours.longest_idle_ms(), simulated = ours.longest_idle_ms(&Bubble::simulated_idle_s);
    if (flags_.network.hosts == 1) {
      add({"idle", ours.title(), "1.15 x simulated + 1 % of the step",
           idle / (kMostIdle * simulated + kIdleAllowance * step), 1.0, false});
    } else {
      add({"step", ours.title(), "computation + simulated bubble", step / (step - idle + simulated),
           kMostBetweenHosts, false});
    }
  }

  void compare_speed(const PipelineContestant& ours, const PipelineContestant& other,
                     std::optional<double> goal) {
    const PeerRatio ratio = peer_ratio(repeated(ours.step_ms), repeated(other.step_ms));
    add({training_.throughput(), ours.title(), other.title(), ratio.value, goal, true, ratio.of_minima});
  }

  void compare_to_others(const PipelineContestant& ours) {
    for (const PipelineContestant& other : contestants_) {
      if (other.system == "pytorch" && other.schedule == ours.schedule) compare_speed(ours, other, kOverPeer);
      if (other.schedule.empty()) compare_speed(ours, other, ddp_goal());
      if (flags_.is_emulated() && ours.schedule == "zb_v" && other.schedule == "1f1b") {
        const bool studied = flags_.ranks == 4 && flags_.micro_batches == 8;
        add({"idle", ours.title(), other.title(), ours.longest_idle_ms() / other.longest_idle_ms(),
             studied ? std::optional(kZeroBubble) : std::nullopt, false});
      }
    }
  }

  std::optional<double> ddp_goal() const {
    for (const auto& [bits_per_second, goal] : kOverDdp) {
      if (flags_.network.bits_per_second == bits_per_second) return goal;
    }
    return {};
  }

  const PipelineContestant* fastest_of(const std::string& system) const {
    const PipelineContestant* best = nullptr;
    for (const PipelineContestant& each : contestants_) {
      if (each.system != system || each.schedule.empty()) continue;
      if (best == nullptr || median(each.step_ms) < median(best->step_ms)) best = &each;
    }
    return best;
  }

  const PipelineFlags& flags_;
  const StepCase& training_;
  const std::vector<PipelineContestant>& contestants_;
  Json rows_ = Json::array();
};

void print_pipelines(const Json& rows, const PipelineFlags& flags, const char* throughput) {
  if (flags.is_emulated()) std::printf("Emulated accelerators: each unit sleeps for a fixed time.\n");
  const auto is_fast = [](const Json& row) { return row.contains("matmul") && row["matmul"] == "fast"; };
  if (std::any_of(rows.begin(), rows.end(), is_fast)) {
    std::printf(
        "rondo uses the fast matrix-product kernels, the peers the default ones (--matmul libtorch: default "
        "ones for all).\n");
  }
  print_table(rows,
              {{"system", -8, "system"},
               {"strategy", -9, "strategy"},
               {"schedule", -12, "schedule"},
               {"p50 ms", 10, "step_ms_p50", 1},
               {"min ms", 10, "step_ms_min", 1},
               {"items/s", 10, throughput, 1},
               {"idle ms by rank", -24, "idle_ms", 1},
               {"simulated", -24, "simulated_idle_ms", 1}},
              13);
}

class PipelineStarter {
 public:
  PipelineStarter(const PipelineFlags& flags, const StepCase& training, FleetPlace place)
      : flags_(flags), training_(training), place_(std::move(place)) {}

  PipelineContestant pipeline(const std::string& schedule) const {
    return start("rondo", "pipeline", schedule,
                 {own_program(), "pipeline-worker", "--strategy", "pipeline", "--model", training_.model});
  }
  PipelineContestant ddp() const {
    return start("rondo", "ddp", "",
                 {own_program(), "pipeline-worker", "--strategy", "ddp", "--model", training_.model});
  }
  PipelineContestant pytorch(const std::string& schedule) const {
    return start("pytorch", "pipeline", schedule, {python(), peer_script("pipeline.py")});
  }

 private:
  PipelineContestant start(const std::string& system, const std::string& strategy,
                           const std::string& schedule, std::vector<std::string> command) const {
    if (!schedule.empty())
      command.insert(command.end(),
                     {"--pipeline-schedule", schedule, "--micro-batches", str(flags_.micro_batches)});
    return {.system = system,
            .schedule = schedule,
            .fleet = start_fleet(str(system, " ", strategy, " ", schedule), command, {}, training_, place_)};
  }

  const PipelineFlags& flags_;
  const StepCase& training_;
  FleetPlace place_;
};

Json run_pipeline(PipelineFlags& flags, bool prints) {
  check_network(flags.network, flags.ranks);
  if (flags.batch_size % flags.ranks != 0)
    throw UsageError(str("--batch-size ", flags.batch_size, " does not divide among --ranks ", flags.ranks));
  if (flags.peers && flags.is_emulated())
    throw UsageError("--peers and --emulate-accelerator exclude each other: the peers compute on the CPU");
  const bool peers = peers_take_part(flags.peers);
  if (!flags.is_emulated()) prepare_matmul(flags.matmul);
  const auto scratch = make_scratch();
  StepCase training{
      .model = flags.model,
      .config = {{"unit_ms", flags.emulated_unit_ms}, {"units", flags.ranks * kEmulatedUnitsOfRank}},
      .dtype = "float32",
      .optimizer = flags.is_emulated() ? "sgd" : "adamw",
      .learning_rate = 3e-4,
      .batch_size = flags.batch_size,
      .weights = fs::path(scratch.path()) / "initial.safetensors"};
  if (!flags.is_emulated()) write_initial_weights(training);
  std::optional<EmulatedHosts> hosts;
  if (flags.network.hosts > 1) hosts.emplace(flags.network.hosts, flags.network.rate);
  const PipelineStarter starter(flags, training,
                                {.ranks = flags.ranks,
                                 .pinned = !flags.is_emulated(),
                                 .hosts = hosts ? &*hosts : nullptr,
                                 .scratch = scratch.path()});
  std::vector<PipelineContestant> all;
  const auto in_turns = [&](std::vector<PipelineContestant> contestants) {
    for (int round = flags.turns.warm_up > 0 ? -1 : 0; round < flags.turns.rounds; ++round) {
      for (PipelineContestant& contestant : contestants) {
        take_steps(contestant, flags.micro_batches, round < 0 ? flags.turns.warm_up : flags.turns.steps,
                   round >= 0);
      }
    }
    for (PipelineContestant& contestant : contestants) {
      contestant.fleet.reset();  // ends the contestant's processes
      all.push_back(std::move(contestant));
    }
  };
  if (peers) {
    // One schedule and its peer at a time: all together would need the memory of twenty models.
    for (const std::string& schedule : flags.schedules)
      in_turns({starter.pipeline(schedule), starter.pytorch(schedule)});
  } else {
    std::vector<PipelineContestant> contestants;
    if (flags.network.hosts > 1) contestants.push_back(starter.ddp());
    for (const std::string& schedule : flags.schedules) contestants.push_back(starter.pipeline(schedule));
    in_turns(std::move(contestants));
  }
  Json rows = PipelineRows(flags, training, all).take();
  if (prints) print_pipelines(rows, flags, training.throughput());
  return rows;
}

}  // namespace

Command add_pipeline(CLI::App& parent) {
  return add_benchmark<PipelineFlags>(
      parent,
      {"pipeline", "Pipeline schedules, compared with the simulation, PyTorch and ddp between hosts",
       "Examples:\n"
       "  rondo bench-dev pipeline --peers --json pipeline.json\n"
       "  rondo bench-dev pipeline --ranks 4 --emulate-accelerator 10\n"
       "  rondo bench-dev pipeline --emulate-hosts 2 --rate 1gbit --pipeline-schedule 1f1b zb_h1 zb_v"},
      [](CLI::App& app, PipelineFlags& flags) {
        app.add_option("--pipeline-schedule", flags.schedules, "schedules to run")
            ->check(CLI::IsMember(pipeline::schedule_names()));
        app.add_option("--model", flags.model)->check(CLI::IsMember({"gpt-25m", "gpt-tiny"}));
        app.add_option("--ranks", flags.ranks, "processes of one thread each, with one or two stages each")
            ->check(between(2, 64));
        app.add_option("--batch-size", flags.batch_size, "samples per step")->check(positive_number());
        app.add_option("--micro-batches", flags.micro_batches, "micro-batches per step")
            ->check(positive_number());
        app.add_option("--emulate-accelerator", flags.emulated_unit_ms,
                       "replace the model by two units per rank that sleep this long in each pass")
            ->check(positive_number());
        add_network_flags(app, flags.network);
        app.add_option(
               "--matmul", flags.matmul,
               "kernels of rondo's matrix products: auto (the fastest) or libtorch (PyTorch's default)")
            ->check(CLI::IsMember({"libtorch", "auto"}));
        app.add_flag("--peers", flags.peers, "also run PyTorch's torch.distributed.pipelining over Gloo");
        add_turns_flags(app, flags.turns);
      },
      run_pipeline);
}

}  // namespace rondo::bench
