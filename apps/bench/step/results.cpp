#include <cmath>
#include <cstdio>
#include <map>

#include "apps/bench/step/step.h"
#include "rondo/base/arithmetic.h"
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

// Returns the loss of each step, averaged over ranks.
std::vector<double> mean_losses(const Contestant& contestant) {
  std::vector<double> mean(contestant.samples.front().losses.size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    for (const RankSamples& rank : contestant.samples) mean[i] += rank.losses[i];
    mean[i] /= static_cast<double>(contestant.ranks);
  }
  return mean;
}

// Returns the value below which `part` of the values are; `values` is not empty.
double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::lround(part * static_cast<double>(values.size() - 1)))];
}

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
              {"step_ms_min", fastest(steps)},
              {"step_ms_p90", quantile(steps, 0.9)},
              {training.throughput(), 1 / item_time(training, contestant).p50},
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

}  // namespace

std::vector<double> pooled(const Contestant& contestant, std::vector<double> RankSamples::*member) {
  std::vector<double> all;
  for (const RankSamples& rank : contestant.samples) {
    all.insert(all.end(), (rank.*member).begin(), (rank.*member).end());
  }
  return all;
}

double median_step(const Contestant& contestant) { return median(pooled(contestant, &RankSamples::step_ms)); }

RepeatedTime item_time(const StepCase& training, const Contestant& contestant) {
  double at_median = 0, at_best = 0;
  for (const RankSamples& rank : contestant.samples) {
    at_median += 1 / median(rank.step_ms);
    at_best += 1 / fastest(rank.step_ms);
  }
  const double items_ms =
      static_cast<double>(training.items()) * 1e3 * static_cast<double>(contestant.replicas);
  return {1 / (items_ms * at_median), 1 / (items_ms * at_best)};
}

std::uint64_t largest(const Contestant& contestant, std::uint64_t RankSamples::*member) {
  std::uint64_t most = 0;
  for (const RankSamples& rank : contestant.samples) most = std::max(most, rank.*member);
  return most;
}

const Contestant* find(const std::vector<Contestant>& contestants, const std::string& title) {
  for (const Contestant& contestant : contestants) {
    if (contestant.title() == title) return &contestant;
  }
  return nullptr;
}

std::optional<double> line_rate_ms(const StepCase& training, const Network& network,
                                   const Contestant& contestant) {
  // Names of PyTorch and of rondo.
  static const std::map<std::string, int> passes = {
      {"ddp", 2}, {"zero1", 2}, {"zero2", 2}, {"hsdp", 2}, {"zero3_keep", 2}, {"zero3", 3}, {"fsdp2", 3}};
  const auto known = passes.find(contestant.strategy);
  if (network.hosts < 2 || known == passes.end() || training.codec != "none") return {};
  const double hosts = network.hosts;
  const double bytes = known->second * (hosts - 1) / hosts * static_cast<double>(training.gradient_bytes);
  return bytes * 8 / network.bits_per_second * 1e3;
}

std::optional<double> bound_ms(const StepCase& training, const Network& network,
                               const std::vector<Contestant>& contestants, const Contestant& contestant) {
  const Contestant* alone = find(contestants, "rondo one_device");
  const std::optional<double> link = line_rate_ms(training, network, contestant);
  if (!alone || !link) return {};
  return std::max(median_step(*alone), *link);
}

Json step_results(const StepCase& training, const Network& network,
                  const std::vector<Contestant>& contestants, bool losses) {
  Json results = Json::array();
  for (const Contestant& contestant : contestants)
    results.push_back(describe(training, network, contestants, contestant, losses));
  for (Json& ratio : ratios(training, network, contestants)) results.push_back(std::move(ratio));
  return results;
}

void print_step_results(const Json& results) {
  Json shown = results;
  for (Json& row : shown) {
    if (!row.contains("system")) continue;
    const std::string setting = row["setting"];
    row["title"] = str(row["system"].get<std::string>(), " ", row["strategy"].get<std::string>(),
                       setting.empty() ? "" : ", ", setting);
    row["items_per_s"] = row.contains("tokens_per_s") ? row["tokens_per_s"] : row["samples_per_s"];
  }
  print_table(shown,
              {{"", -34, "title"},
               {"model", -8, "model"},
               {"dtype", -8, "dtype"},
               {"ranks", 5, "ranks"},
               {"p50 ms", 10, "step_ms_p50", 3},
               {"min ms", 10, "step_ms_min", 3},
               {"bound ms", 11, "bound_ms"},
               {"items/s", 9, "items_per_s", 1},
               {"peak MiB", 9, "peak_resident_bytes", 0, 1 / 0x1p20},
               {"final loss", 11, "final_loss", 6}},
              20);
  for (const Json& row : results) {
    if (!row.contains("won")) continue;
    const int won = row["won"];
    std::printf("policy %s: faster in %d of %d comparisons%s\n", row["policy"].get<std::string>().c_str(),
                won, row["tried"].get<int>(), won == 0 ? "; it never wins" : "");
  }
  std::printf("\n");
}

}  // namespace rondo::bench
