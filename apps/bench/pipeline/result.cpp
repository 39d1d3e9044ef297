#include "apps/bench/pipeline/result.h"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "apps/bench/print_ratio.h"
#include "rondo/base/median.h"
#include "rondo/base/peer_ratio.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

using Json = nlohmann::ordered_json;

// Goals of gpt-25m, and of emulated stages of equal times.
constexpr double kMostIdle = 1.15;         // of the simulated bubble ...
constexpr double kIdleAllowance = 0.01;    // ... and this part of the step
constexpr double kOverPeer = 1.2;          // tokens a second, of PyTorch's
constexpr double kZeroBubble = 0.35;       // idle time of zb_v, of that of 1f1b
constexpr double kMostBetweenHosts = 1.1;  // a step, of computation and bubble
// Tokens a second of ddp's between two hosts, by the link's bits a second.
constexpr std::pair<double, double> kOverDdp[] = {{1e9, 0.95}, {4e8, 1.3}};

double fastest_of(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

// The median over steps of `figure`, for each rank or stage, in milliseconds.
template <class Figure>
std::vector<double> medians_ms(const PipelineContestant& contestant, std::size_t count, Figure figure) {
  std::vector<double> result;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<double> values;
    for (const Bubble& bubble : contestant.bubbles) values.push_back(figure(bubble, i) * 1e3);
    result.push_back(median(values));
  }
  return result;
}

std::vector<double> idle_ms(const PipelineContestant& contestant) {
  return medians_ms(contestant, contestant.bubbles.front().idle_s.size(),
                    [](const Bubble& bubble, std::size_t rank) { return bubble.idle_s[rank]; });
}

std::vector<double> simulated_idle_ms(const PipelineContestant& contestant) {
  return medians_ms(contestant, contestant.bubbles.front().idle_s.size(),
                    [](const Bubble& bubble, std::size_t rank) { return bubble.simulated_idle_s[rank]; });
}

double largest_of(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

class Rows {
 public:
  Rows(const PipelineCase& what, const std::vector<PipelineContestant>& contestants)
      : what_(what), contestants_(contestants) {}

  Json take() {
    for (const PipelineContestant& contestant : contestants_) describe(contestant);
    for (const PipelineContestant& contestant : contestants_) {
      if (!contestant.tells_bubbles()) continue;
      compare_to_simulation(contestant);
      compare_to_others(contestant);
    }
    compare_fastest();
    return std::move(rows_);
  }

 private:
  bool promised() const { return what_.emulated || what_.training.model == "gpt-25m"; }

  double items_per_s(double step_ms) const {
    return static_cast<double>(what_.training.items()) / step_ms * 1e3;
  }

  void describe(const PipelineContestant& contestant) {
    Json row{{"system", contestant.system},
             {"strategy", contestant.schedule.empty() ? "ddp" : "pipeline"},
             {"schedule", contestant.schedule.empty() ? Json(nullptr) : Json(contestant.schedule)},
             {"model", what_.emulated ? "emulated" : what_.training.model},
             {"emulated", what_.emulated},
             {"ranks", what_.ranks},
             {"hosts", what_.network.hosts},
             {"rate", what_.network.hosts > 1 ? Json(what_.network.rate) : Json(nullptr)},
             {"matmul", what_.emulated ? Json(nullptr) : Json(contestant.matmul)},
             {"micro_batches", what_.micro_batches},
             {"batch_size", what_.training.batch_size},
             {"steps", contestant.step_ms.size()},
             {"step_ms_p50", median(contestant.step_ms)},
             {"step_ms_min", fastest_of(contestant.step_ms)},
             {what_.training.throughput(), items_per_s(median(contestant.step_ms))},
             {"peak_rss_bytes", contestant.peak_rss_bytes},
             {"final_loss", contestant.last_loss}};
    if (contestant.tells_bubbles()) {
      const std::size_t stages = contestant.bubbles.front().times.size();
      const auto of_stage = [&](double pipeline::StageTimes::*time) {
        return medians_ms(contestant, stages, [time](const Bubble& bubble, std::size_t stage) {
          return bubble.times[stage].*time;
        });
      };
      row["schedule_ms"] = medians_ms(contestant, 1, [](const Bubble& bubble, std::size_t) {
                             return bubble.schedule_s;
                           }).front();
      row["idle_ms"] = idle_ms(contestant);
      row["simulated_idle_ms"] = simulated_idle_ms(contestant);
      row["forward_ms"] = of_stage(&pipeline::StageTimes::forward_s);
      row["input_gradient_ms"] = of_stage(&pipeline::StageTimes::backward_input_s);
      row["weight_gradient_ms"] = of_stage(&pipeline::StageTimes::backward_weight_s);
    }
    rows_.push_back(std::move(row));
  }

  Json& compare(const char* ratio, const PipelineContestant& of, const std::string& to, double value,
                std::optional<double> goal, const char* better) {
    rows_.push_back({{"ratio", ratio},
                     {"of", of.title()},
                     {"to", to},
                     {"value", value},
                     {"goal", goal && promised() ? Json(*goal) : Json(nullptr)},
                     {"better", better}});
    return rows_.back();
  }

  // The rank that stands still longest, next to the one that has to.
  void compare_to_simulation(const PipelineContestant& ours) {
    const double step = median(ours.step_ms);
    const double idle = largest_of(idle_ms(ours)), simulated = largest_of(simulated_idle_ms(ours));
    if (what_.network.hosts == 1) {
      compare("idle", ours, "1.15 x simulated + 1 % of the step",
              idle / (kMostIdle * simulated + kIdleAllowance * step), 1.0, "lower");
    } else {
      compare("step", ours, "computation + simulated bubble", step / (step - idle + simulated),
              kMostBetweenHosts, "lower");
    }
  }

  void compare_speed(const PipelineContestant& ours, const PipelineContestant& other,
                     std::optional<double> goal) {
    const PeerRatio ratio = peer_ratio({median(ours.step_ms), fastest_of(ours.step_ms)},
                                       {median(other.step_ms), fastest_of(other.step_ms)});
    compare(what_.training.throughput(), ours, other.title(), ratio.value, goal, "higher")["by"] =
        ratio.of_minima ? "min" : "p50";
  }

  void compare_to_others(const PipelineContestant& ours) {
    for (const PipelineContestant& other : contestants_) {
      if (other.system == "pytorch" && other.schedule == ours.schedule) compare_speed(ours, other, kOverPeer);
      if (other.schedule.empty()) compare_speed(ours, other, ddp_goal());
      if (what_.emulated && ours.schedule == "zb_v" && other.schedule == "1f1b") {
        const bool studied = what_.ranks == 4 && what_.micro_batches == 8;
        compare("idle", ours, other.title(), largest_of(idle_ms(ours)) / largest_of(idle_ms(other)),
                studied ? std::optional(kZeroBubble) : std::nullopt, "lower");
      }
    }
  }

  std::optional<double> ddp_goal() const {
    for (const auto& [bits_per_second, goal] : kOverDdp) {
      if (what_.network.bits_per_second == bits_per_second) return goal;
    }
    return {};
  }

  const PipelineContestant* fastest(const std::string& system) const {
    const PipelineContestant* best = nullptr;
    for (const PipelineContestant& each : contestants_) {
      if (each.system != system || each.schedule.empty()) continue;
      if (best == nullptr || median(each.step_ms) < median(best->step_ms)) best = &each;
    }
    return best;
  }

  // Whatever the schedules: what somebody gets who takes the best of each.
  void compare_fastest() {
    const PipelineContestant *const ours = fastest("rondo"), *const peers = fastest("pytorch");
    if (ours != nullptr && peers != nullptr && ours->schedule != peers->schedule)
      compare_speed(*ours, *peers, kOverPeer);
  }

  const PipelineCase& what_;
  const std::vector<PipelineContestant>& contestants_;
  Json rows_ = Json::array();
};

std::string listed(const Json& values) {
  std::vector<std::string> texts;
  for (const Json& value : values) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", value.get<double>());
    texts.emplace_back(text);
  }
  return join(texts, " ");
}

}  // namespace

Json pipeline_results(const PipelineCase& what, const std::vector<PipelineContestant>& contestants) {
  return Rows(what, contestants).take();
}

void print_pipeline_results(const Json& results) {
  const bool emulated = !results.empty() && results.front().value("emulated", false);
  if (emulated)
    std::printf("Emulated accelerators: each unit takes a fixed time in which the core is free.\n");
  for (const Json& row : results) {
    if (row.value("matmul", Json(nullptr)) != "fast") continue;
    std::printf(
        "rondo's matrix products use the fast kernels, the others' the default ones (--matmul libtorch: "
        "all).\n");
    break;
  }
  std::printf("%-22s %10s %10s %10s  %-24s %-24s\n", "", "p50 ms", "min ms", "items/s", "idle ms by rank",
              "simulated");
  for (const Json& row : results) {
    if (!row.contains("system")) continue;
    const Json& rate = row.contains("tokens_per_s") ? row["tokens_per_s"] : row["samples_per_s"];
    const std::string name = row["schedule"].is_null() ? "ddp" : row["schedule"].get<std::string>();
    std::printf("%-22s %10.1f %10.1f %10.1f  %-24s %-24s\n",
                str(row["system"].get<std::string>(), " ", name).c_str(), row["step_ms_p50"].get<double>(),
                row["step_ms_min"].get<double>(), rate.get<double>(),
                listed(row.value("idle_ms", Json::array())).c_str(),
                listed(row.value("simulated_idle_ms", Json::array())).c_str());
  }
  for (const Json& row : results) {
    if (row.contains("ratio")) print_ratio(row, 13);
  }
}

}  // namespace rondo::bench
