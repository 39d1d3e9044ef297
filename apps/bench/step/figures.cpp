#include "apps/bench/step/figures.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "rondo/base/median.h"

namespace rondo::bench {

double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(std::lround(part * static_cast<double>(values.size() - 1)))];
}

std::vector<double> pooled(const Contestant& contestant, std::vector<double> RankSamples::*member) {
  std::vector<double> all;
  for (const RankSamples& rank : contestant.samples) {
    all.insert(all.end(), (rank.*member).begin(), (rank.*member).end());
  }
  return all;
}

double median_step(const Contestant& contestant) { return median(pooled(contestant, &RankSamples::step_ms)); }

double throughput(const StepCase& training, const Contestant& contestant) {
  double sum = 0;
  for (const RankSamples& rank : contestant.samples) {
    sum += static_cast<double>(training.items()) / (median(rank.step_ms) / 1e3);
  }
  return sum * static_cast<double>(contestant.replicas);
}

double best_throughput(const StepCase& training, const Contestant& contestant) {
  double sum = 0;
  for (const RankSamples& rank : contestant.samples) {
    const double fastest = *std::min_element(rank.step_ms.begin(), rank.step_ms.end());
    sum += static_cast<double>(training.items()) / (fastest / 1e3);
  }
  return sum * static_cast<double>(contestant.replicas);
}

std::uint64_t largest(const Contestant& contestant, std::uint64_t RankSamples::*member) {
  std::uint64_t most = 0;
  for (const RankSamples& rank : contestant.samples) most = std::max(most, rank.*member);
  return most;
}

std::vector<double> mean_losses(const Contestant& contestant) {
  std::vector<double> mean(contestant.samples.front().losses.size());
  for (std::size_t i = 0; i < mean.size(); ++i) {
    for (const RankSamples& rank : contestant.samples) mean[i] += rank.losses[i];
    mean[i] /= static_cast<double>(contestant.ranks);
  }
  return mean;
}

const Contestant* find(const std::vector<Contestant>& contestants, const std::string& title) {
  for (const Contestant& contestant : contestants) {
    if (contestant.title() == title) return &contestant;
  }
  return nullptr;
}

std::optional<double> line_rate_ms(const StepCase& training, const Network& network,
                                   const Contestant& contestant) {
  // PyTorch's names and rondo's.
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

}  // namespace rondo::bench
