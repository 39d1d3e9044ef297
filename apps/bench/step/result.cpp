#include "apps/bench/step/result.h"

#include <algorithm>
#include <cstdio>
#include <optional>

namespace rondo::bench {
namespace {

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

double median(const std::vector<double>& values) { return quantile(values, 0.5); }

std::vector<double> pooled(const Contestant& contestant, std::vector<double> RankSamples::*member) {
  std::vector<double> all;
  for (const RankSamples& rank : contestant.samples) {
    all.insert(all.end(), (rank.*member).begin(), (rank.*member).end());
  }
  return all;
}

// Sum over ranks, each at its own median: right for ranks in lockstep and for independent ones.
double throughput(const StepCase& training, const Contestant& contestant) {
  double sum = 0;
  for (const RankSamples& rank : contestant.samples) {
    sum += static_cast<double>(training.items()) / (median(rank.step_ms) / 1e3);
  }
  return sum;
}

std::vector<double> mean_losses(const Contestant& contestant) {
  std::vector<double> mean(contestant.samples.front().losses.size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    for (const RankSamples& rank : contestant.samples) mean[i] += rank.losses[i];
    mean[i] /= static_cast<double>(contestant.ranks);
  }
  return mean;
}

// PyTorch has no hooks for the byte codecs with error feedback.
std::string codec_of(const StepCase& training, const Contestant& contestant) {
  if (contestant.strategy != "ddp") return "none";
  const std::string name = training.codec.substr(0, training.codec.find(':'));
  const bool in_both = name == "allreduce" || name == "fp16_compress" || name == "bf16_compress" ||
                       name == "noop" || name == "power_sgd";
  return contestant.system == "rondo" || in_both ? training.codec : "none";
}

Json describe(const StepCase& training, const Contestant& contestant, bool losses) {
  const std::vector<double> steps = pooled(contestant, &RankSamples::step_ms);
  const std::vector<double> comm = pooled(contestant, &RankSamples::comm_ms);
  const std::vector<double> exposed = pooled(contestant, &RankSamples::exposed_comm_ms);
  std::uint64_t peak = 0;
  std::uint64_t peak_rss = 0;
  for (const RankSamples& rank : contestant.samples) {
    peak = std::max(peak, rank.peak_bytes);
    peak_rss = std::max(peak_rss, rank.peak_rss_bytes);
  }
  const std::vector<double> loss = mean_losses(contestant);
  Json result{{"system", contestant.system},
              {"strategy", contestant.strategy},
              {"setting", contestant.setting},
              {"model", training.model},
              {"ranks", contestant.ranks},
              {"hosts", 1},
              {"rate", nullptr},
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
              {"peak_bytes", peak == 0 ? Json(nullptr) : Json(peak)},
              {"peak_rss_bytes", peak_rss},
              {"final_loss", loss.back()}};
  if (contestant.strategy == "one_device") result["comm_ms"] = result["exposed_comm_ms"] = 0;
  if (contestant.strategy == "one_device") result["compute_ms"] = median(steps);
  if (losses) result["losses"] = loss;
  return result;
}

const Contestant* find(const std::vector<Contestant>& contestants, const std::string& title) {
  for (const Contestant& contestant : contestants) {
    if (contestant.title() == title) return &contestant;
  }
  return nullptr;
}

// The promises: rondo's ddp to each of the others. Without a goal the ratio is for information.
struct Promise {
  const char* to;
  std::optional<double> gpt_float32;
  std::optional<double> gpt_bfloat16;
  std::optional<double> small;
};
constexpr Promise kPromises[] = {
    {"pytorch ddp, as usually written", 1.10, 1.20, 4.0},
    {"pytorch ddp, fastest setting", 1.05, {}, {}},
    {"rondo one_device", 1.85, {}, {}},
    {"rondo one_device, independent", 0.97, {}, {}},
};

}  // namespace

Json step_results(const StepCase& training, const std::vector<Contestant>& contestants, bool losses) {
  Json results = Json::array();
  for (const Contestant& contestant : contestants) results.push_back(describe(training, contestant, losses));
  const Contestant* ours = find(contestants, "rondo ddp");
  if (!ours) return results;
  for (const Promise& promise : kPromises) {
    const Contestant* other = find(contestants, promise.to);
    if (!other) continue;
    std::optional<double> goal;
    if (training.model == "gpt-25m")
      goal = training.dtype == "float32" ? promise.gpt_float32 : promise.gpt_bfloat16;
    if (training.model == "mlp") goal = promise.small;
    results.push_back({{"ratio", training.throughput()},
                       {"model", training.model},
                       {"dtype", training.dtype},
                       {"matmul", ours->samples.front().matmul},
                       {"of", ours->title()},
                       {"to", other->title()},
                       {"value", throughput(training, *ours) / throughput(training, *other)},
                       {"goal", goal ? Json(*goal) : Json(nullptr)}});
  }
  return results;
}

void print_results(const Json& results) {
  std::printf("%-32s %-9s %-9s %5s %12s %12s %14s %11s\n", "", "model", "dtype", "ranks", "p50 ms", "min ms",
              "items/s", "final loss");
  for (const Json& row : results) {
    if (row.contains("ratio")) continue;
    const std::string setting = row["setting"].get<std::string>();
    const std::string title = row["system"].get<std::string>() + " " + row["strategy"].get<std::string>() +
                              (setting.empty() ? "" : ", " + setting);
    const Json& rate = row.contains("tokens_per_s") ? row["tokens_per_s"] : row["samples_per_s"];
    std::printf("%-32s %-9s %-9s %5d %12.3f %12.3f %14.1f %11.6f\n", title.c_str(),
                row["model"].get<std::string>().c_str(), row["dtype"].get<std::string>().c_str(),
                row["ranks"].get<int>(), row["step_ms_p50"].get<double>(), row["step_ms_min"].get<double>(),
                rate.get<double>(), row["final_loss"].get<double>());
  }
  for (const Json& row : results) {
    if (!row.contains("ratio")) continue;
    std::printf("%s / %s: %.3f", row["of"].get<std::string>().c_str(), row["to"].get<std::string>().c_str(),
                row["value"].get<double>());
    if (!row["goal"].is_null()) {
      const bool met = row["value"].get<double>() >= row["goal"].get<double>();
      std::printf("  (goal %.2f: %s)", row["goal"].get<double>(), met ? "met" : "missed");
    }
    std::printf("\n");
  }
  std::printf("\n");
}

}  // namespace rondo::bench
