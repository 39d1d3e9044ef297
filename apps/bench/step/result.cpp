#include "apps/bench/step/result.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "apps/bench/print_ratio.h"
#include "apps/bench/step/figures.h"
#include "rondo/base/median.h"
#include "rondo/base/peer_ratio.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

// PyTorch has no hooks for the byte codecs with error feedback.
std::string codec_of(const StepCase& training, const Contestant& contestant) {
  if (contestant.strategy != "ddp") return "none";
  const std::string name = training.codec.substr(0, training.codec.find(':'));
  const bool in_both = name == "allreduce" || name == "fp16_compress" || name == "bf16_compress" ||
                       name == "noop" || name == "power_sgd";
  return contestant.system == "rondo" || in_both ? training.codec : "none";
}

Json or_null(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }
Json or_null(std::uint64_t value) { return value == 0 ? Json(nullptr) : Json(value); }

Json describe(const StepCase& training, const Network& network, const std::vector<Contestant>& contestants,
              const Contestant& contestant, bool losses) {
  const std::vector<double> steps = pooled(contestant, &RankSamples::step_ms);
  const std::vector<double> comm = pooled(contestant, &RankSamples::comm_ms);
  const std::vector<double> exposed = pooled(contestant, &RankSamples::exposed_comm_ms);
  const std::vector<double> loss = mean_losses(contestant);
  Json result{{"system", contestant.system},
              {"strategy", contestant.strategy},
              {"setting", contestant.setting},
              {"model", training.model},
              {"ranks", contestant.ranks},
              {"replicas", contestant.replicas},
              {"hosts", network.hosts},
              {"rate", network.hosts > 1 ? Json(network.rate) : Json(nullptr)},
              {"dtype", training.dtype},
              {"matmul", contestant.samples.front().matmul},
              {"codec", codec_of(training, contestant)},
              {"optimizer", training.optimizer},
              {"batch_size", training.batch_size},
              {"steps", steps.size() / contestant.ranks},
              {"step_ms_p50", median(steps)},
              {"step_ms_min", *std::min_element(steps.begin(), steps.end())},
              {"step_ms_p90", quantile(steps, 0.9)},
              {training.throughput(), throughput(training, contestant)},
              {"compute_ms", exposed.empty() ? Json(nullptr) : Json(median(steps) - median(exposed))},
              {"comm_ms", comm.empty() ? Json(nullptr) : Json(median(comm))},
              {"exposed_comm_ms", exposed.empty() ? Json(nullptr) : Json(median(exposed))},
              {"peak_bytes", or_null(largest(contestant, &RankSamples::peak_bytes))},
              {"peak_tensor_bytes", or_null(largest(contestant, &RankSamples::peak_tensor_bytes))},
              {"peak_rss_bytes", largest(contestant, &RankSamples::peak_rss_bytes)},
              {"peak_pss_bytes", or_null(largest(contestant, &RankSamples::peak_pss_bytes))},
              {"peak_resident_bytes", or_null(largest(contestant, &RankSamples::peak_resident_bytes))},
              {"final_loss", loss.back()}};
  if (contestant.strategy == "one_device") result["comm_ms"] = result["exposed_comm_ms"] = 0;
  if (contestant.strategy == "one_device") result["compute_ms"] = median(steps);
  if (network.hosts > 1) {
    result["link_bytes"] = static_cast<double>(contestant.link_bytes) / std::max(1, contestant.link_steps);
    result["line_rate_ms"] = or_null(line_rate_ms(training, network, contestant));
    result["bound_ms"] = or_null(bound_ms(training, network, contestants, contestant));
  }
  if (losses) result["losses"] = loss;
  return result;
}

std::string title_of(const Json& row) {
  const std::string setting = row["setting"].get<std::string>();
  return row["system"].get<std::string>() + " " + row["strategy"].get<std::string>() +
         (setting.empty() ? "" : ", " + setting);
}

void print_contestants(const Json& results) {
  std::printf("%-34s %-8s %-8s %5s %10s %10s %11s %9s %9s %11s\n", "", "model", "dtype", "ranks", "p50 ms",
              "min ms", "bound ms", "items/s", "peak MiB", "final loss");
  for (const Json& row : results) {
    if (!row.contains("system")) continue;
    const Json& rate = row.contains("tokens_per_s") ? row["tokens_per_s"] : row["samples_per_s"];
    const Json bound = row.value("bound_ms", Json(nullptr));
    std::string bound_text;
    if (!bound.is_null()) bound_text = str(std::lround(bound.get<double>()));
    const Json& resident = row["peak_resident_bytes"];
    std::printf("%-34s %-8s %-8s %5d %10.3f %10.3f %11s %9.1f %9.0f %11.6f\n", title_of(row).c_str(),
                row["model"].get<std::string>().c_str(), row["dtype"].get<std::string>().c_str(),
                row["ranks"].get<int>(), row["step_ms_p50"].get<double>(), row["step_ms_min"].get<double>(),
                bound_text.c_str(), rate.get<double>(),
                resident.is_null() ? 0.0 : resident.get<double>() / 0x1p20, row["final_loss"].get<double>());
  }
}

}  // namespace

Json step_results(const StepCase& training, const Network& network,
                  const std::vector<Contestant>& contestants, bool losses) {
  Json results = Json::array();
  for (const Contestant& contestant : contestants)
    results.push_back(describe(training, network, contestants, contestant, losses));
  for (Json& ratio : ratios(training, network, contestants)) results.push_back(std::move(ratio));
  return results;
}

void print_results(const Json& results) {
  bool any = false;
  for (const Json& row : results) any = any || row.contains("system");
  if (any) print_contestants(results);
  bool by_peer = false;
  for (const Json& row : results) {
    if (row.contains("ratio")) print_ratio(row, 20);
    by_peer = by_peer || row.contains("by");
    if (row.contains("won")) {
      const int won = row["won"].get<int>();
      std::printf("policy %s: faster in %d of %d comparisons%s\n", row["policy"].get<std::string>().c_str(),
                  won, row["tried"].get<int>(), won == 0 ? "; it never wins" : "");
    }
  }
  if (by_peer) std::printf("%s\n", kPeerRatioRule);
  std::printf("\n");
}

}  // namespace rondo::bench
