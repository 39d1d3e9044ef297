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

constexpr std::uint64_t kFirst = 8;           // pass that is checked; then each power of two
constexpr std::uint64_t kPeriod = 64;         // passes between two checks, after the first ones
constexpr std::size_t kElements = 16;         // that are compared
constexpr double kRelativeDifference = 1e-3;  // far above what rounding adds up to

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

void DriftCheck::after_pass() {
  ++passes_;
  const bool is_early = passes_ >= kFirst && passes_ < kPeriod && std::has_single_bit(passes_);
  if (!parameters_.empty() && (is_early || passes_ % kPeriod == 0)) compare();
}

void DriftCheck::compare() {
  const at::NoGradGuard no_grad;
  double sum = 0;
  double size = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    const std::uint64_t place = passes_ * kElements + i;
    const at::Tensor& parameter = parameters_[place % parameters_.size()].tensor;
    const auto element =
        static_cast<std::int64_t>(place * 2654435761U % static_cast<std::uint64_t>(parameter.numel()));
    const auto value = parameter.reshape({-1})[element].item<double>();
    sum += value;
    size += std::abs(value);
  }
  at::Tensor table = at::zeros({group_.size(), 2}, at::kDouble);
  table[group_.rank()][0] = sum;
  table[group_.rank()][1] = size;
  table = table.to(group_.traits().control_device());
  all_reduce(table, group_);
  table = table.cpu();
  const auto rows = table.accessor<double, 2>();
  for (int rank = 1; rank < group_.size(); ++rank) {
    const double difference = std::abs(rows[rank][0] - rows[0][0]);
    if (!(difference > kRelativeDifference * std::max(rows[rank][1], rows[0][1]))) continue;
    throw MismatchError(
        str("after ", passes_, " synchronised backward passes ranks have different parameters: the sum of ",
            kElements, " elements is ", rows[0][0], " on rank 0 and ", rows[rank][0], " on rank ", rank,
            ". All ranks must take the same optimizer steps, with the same options. An optimizer that looks "
            "at "
            "the loss, such as LBFGS, needs that of the group: call ddp.step(optimizer, closure), or "
            "prepared->step(optimizer, closure), in place of optimizer.step(closure). "
            "DdpOptions::check_parameters_every names the parameter"),
        {rank});
  }
}

}  // namespace rondo
