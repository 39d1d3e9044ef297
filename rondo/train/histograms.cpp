#include "rondo/train/histograms.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "rondo/backend/collectives.h"

namespace rondo {
namespace {

// Buckets have the same limits on all ranks and in all steps: powers of 2^(1/8) from 2^-32 to 2^32, their
// negatives, and one for smaller magnitudes. Larger elements are in the last one.
constexpr int kInPowerOfTwo = 8;
constexpr int kLargestExponent = 32 * kInPowerOfTwo;
constexpr int kOfOneSign = 2 * kLargestExponent + 1;

// Returns the upper limit of bucket number `bucket`, from -kOfOneSign to kOfOneSign.
double limit_of(int bucket) {
  const auto power = [](int exponent) { return std::exp2(static_cast<double>(exponent) / kInPowerOfTwo); };
  if (bucket >= 0) return power(bucket - kLargestExponent - 1);
  return -power(-bucket - kLargestExponent - 2);
}

at::Tensor buckets_of(const at::Tensor& values) {
  const at::Tensor exponents = values.abs().log2().mul_(kInPowerOfTwo).ceil_();
  const at::Tensor magnitude = exponents.add_(kLargestExponent + 1).clamp_(0, kOfOneSign).to(at::kLong);
  return at::where(values < 0, -magnitude, magnitude) + kOfOneSign;
}

// Returns a rank's summary of a tensor: sums, and [bucket, count] of the buckets that are not empty.
nlohmann::json summary_of(const at::Tensor& local, double global_elements) {
  at::Tensor values = local.detach().flatten().to(at::kCPU, at::kDouble);
  const double held = static_cast<double>(values.numel());
  values = values.index({values.isfinite()});
  nlohmann::json summary = {{"global", global_elements}, {"held", held}, {"count", values.numel()}};
  if (values.numel() == 0) return summary;
  summary["min"] = values.min().item<double>();
  summary["max"] = values.max().item<double>();
  summary["sum"] = values.sum().item<double>();
  summary["squares"] = values.square().sum().item<double>();
  const at::Tensor counts = buckets_of(values).bincount({}, 2 * kOfOneSign + 1);
  nlohmann::json& filled = summary["buckets"] = nlohmann::json::array();
  for (std::int64_t i = 0; i < counts.numel(); ++i) {
    if (const auto count = counts[i].item<std::int64_t>(); count > 0)
      filled.push_back({i - kOfOneSign, count});
  }
  return summary;
}

struct Joint {
  double global = 0, held = 0;
  Histogram histogram = {};
  std::map<int, double> buckets = {};

  void add(const nlohmann::json& part) {
    global = part.at("global").get<double>();
    held += part.at("held").get<double>();
    const double count = part.at("count").get<double>();
    if (count == 0) return;
    const bool first = histogram.count == 0;
    const double min = part.at("min").get<double>(), max = part.at("max").get<double>();
    histogram.min = first ? min : std::min(histogram.min, min);
    histogram.max = first ? max : std::max(histogram.max, max);
    histogram.count += count;
    histogram.sum += part.at("sum").get<double>();
    histogram.sum_of_squares += part.at("squares").get<double>();
    for (const nlohmann::json& bucket : part.at("buckets"))
      buckets[bucket[0].get<int>()] += bucket[1].get<double>();
  }

  // Returns the histogram, with elements that several ranks hold counted once.
  Histogram result() const {
    Histogram whole = histogram;
    const double copies = held / std::max(1.0, global);
    for (double* sum : {&whole.count, &whole.sum, &whole.sum_of_squares}) *sum /= copies;
    for (int bucket = buckets.begin()->first; bucket <= buckets.rbegin()->first; ++bucket) {
      const auto found = buckets.find(bucket);
      whole.limits.push_back(limit_of(bucket));
      whole.counts.push_back(found == buckets.end() ? 0 : found->second / copies);
    }
    return whole;
  }
};

}  // namespace

std::map<std::string, Histogram> histograms_of(Trainer& trainer) {
  const torch::NoGradGuard no_gradients;
  std::map<const void*, at::Tensor> gradients;  // by address of the parameter
  for (const auto& group : trainer.optimizer().param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (parameter.numel() > 0 && parameter.grad().defined())
        gradients[parameter.const_data_ptr()] = parameter.grad();
    }
  }
  nlohmann::json mine = nlohmann::json::object();
  for (const Shard& shard : trainer.weights()) {
    if (!shard.local.defined() || shard.local.numel() == 0 || !shard.local.is_floating_point()) continue;
    double elements = 1;
    for (const std::int64_t size : shard.global_sizes) elements *= static_cast<double>(size);
    mine["weights/" + shard.name] = summary_of(shard.local, elements);
    const auto gradient = gradients.find(shard.local.const_data_ptr());
    if (gradient == gradients.end()) continue;
    const at::Tensor dense = gradient->second.is_sparse() ? gradient->second.to_dense() : gradient->second;
    mine["gradients/" + shard.name] = summary_of(dense, elements);
  }
  const Context& context = trainer.strategy().context();
  std::map<std::string, Joint> joint;
  for (const nlohmann::json& of_rank : all_gather_object(mine, context.world())) {
    for (const auto& [tag, part] : of_rank.items()) joint[tag].add(part);
  }
  std::map<std::string, Histogram> histograms;
  if (context.rank() != 0) return histograms;
  for (const auto& [tag, of_tag] : joint) {
    if (of_tag.histogram.count > 0) histograms[tag] = of_tag.result();
  }
  return histograms;
}

}  // namespace rondo
