#include "rondo/parallel/gradients/drift_check.h"

#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

constexpr std::uint64_t kFirst = 2;           // first pass that is checked; then each power of two
constexpr std::uint64_t kPeriod = 64;         // passes between two checks once kPeriod is reached
constexpr std::size_t kElements = 16;         // number of elements compared
constexpr double kRelativeDifference = 1e-3;  // far above accumulated rounding

bool is_sampled(const ModelTensor& parameter) {
  const at::Tensor& tensor = parameter.tensor;
  return tensor.numel() > 0 && tensor.is_contiguous() &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble);
}

}  // namespace

DriftCheck::DriftCheck(std::vector<ModelTensor> parameters, Group group)
    : parameters_(std::move(parameters)), group_(std::move(group)) {
  std::erase_if(parameters_, [](const ModelTensor& parameter) { return !is_sampled(parameter); });
}

bool DriftCheck::is_due() const {
  const std::uint64_t pass = passes_ + 1;
  const bool is_early = pass >= kFirst && pass < kPeriod && std::has_single_bit(pass);
  return !parameters_.empty() && (is_early || pass % kPeriod == 0);
}

ParameterSample DriftCheck::sample() const {
  const at::NoGradGuard no_grad;
  ParameterSample result;
  for (std::size_t i = 0; i < kElements; ++i) {
    const std::uint64_t place = passes_ * kElements + i;
    const at::Tensor& parameter = parameters_[place % parameters_.size()].tensor;
    const auto element =
        static_cast<std::int64_t>(place * 2654435761U % static_cast<std::uint64_t>(parameter.numel()));
    const auto value = parameter.reshape({-1})[element].item<double>();
    result.sum += value;
    result.size += std::abs(value);
  }
  return result;
}

void DriftCheck::compare(std::span<const ParameterSample> by_rank) const {
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
    const double difference = std::abs(by_rank[rank].sum - by_rank[0].sum);
    if (!(difference > kRelativeDifference * std::max(by_rank[rank].size, by_rank[0].size))) continue;
    throw MismatchError(
        str("after ", passes_, " synchronised backward passes ranks have different parameters: the sum of ",
            kElements, " elements is ", by_rank[0].sum, " on rank 0 and ", by_rank[rank].sum, " on rank ",
            rank,
            ". All ranks must take the same optimizer steps, with the same options. An optimizer that looks "
            "at the loss, such as LBFGS, needs that of the group: call ddp.step(optimizer, closure), or "
            "prepared->step(optimizer, closure), in place of optimizer.step(closure). "
            "DdpOptions::check_parameters_every names the parameter"),
        {static_cast<int>(rank)});
  }
}

void DriftCheck::after_pass(bool is_compared) {
  if (is_due() && !is_compared) {
    const ParameterSample mine = sample();
    at::Tensor table = at::zeros({group_.size(), 2}, at::kDouble);
    table[group_.rank()][0] = mine.sum;
    table[group_.rank()][1] = mine.size;
    table = table.to(group_.traits().control_device());
    all_reduce(table, group_);
    table = table.cpu();
    const auto rows = table.accessor<double, 2>();
    std::vector<ParameterSample> by_rank;
    for (int rank = 0; rank < group_.size(); ++rank) by_rank.push_back({rows[rank][0], rows[rank][1]});
    compare(by_rank);
  }
  ++passes_;
}

}  // namespace rondo
