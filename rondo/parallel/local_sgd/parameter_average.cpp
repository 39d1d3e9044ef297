#include "rondo/parallel/local_sgd/parameter_average.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "rondo/backend/collectives.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo {
namespace {

at::ScalarType dtype_of_average(at::ScalarType dtype) {
  return dtype == at::kDouble ? at::kDouble : at::kFloat;
}

}  // namespace

at::Tensor Fragment::flat() const {
  const at::NoGradGuard no_grad;
  const at::ScalarType dtype = dtype_of_average(tensors_.front().scalar_type());
  std::vector<at::Tensor> parts;
  parts.reserve(tensors_.size());
  for (const at::Tensor& tensor : tensors_) parts.push_back(tensor.detach().reshape({-1}).to(dtype));
  return at::cat(parts);
}

template <class Function>
void Fragment::for_each_part(const at::Tensor& flat, Function function) const {
  const at::NoGradGuard no_grad;
  std::int64_t begin = 0;
  for (const at::Tensor& tensor : tensors_) {
    function(tensor, flat.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
    begin += tensor.numel();
  }
}

void Fragment::assign(const at::Tensor& flat) const {
  for_each_part(flat, [](const at::Tensor& tensor, const at::Tensor& part) { tensor.copy_(part); });
}

void Fragment::advance(const at::Tensor& flat) const {
  for_each_part(flat, [](const at::Tensor& tensor, const at::Tensor& part) { tensor.add_(part); });
}

std::vector<Fragment> cut_into_fragments(const std::vector<at::Tensor>& tensors, std::int64_t count,
                                         std::int64_t first_moment) {
  std::vector<at::Tensor> averaged;
  std::uint64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_floating_point() || tensor.numel() == 0) continue;
    averaged.push_back(tensor);
    bytes += tensor.nbytes();
  }
  const auto parts = static_cast<std::uint64_t>(count);
  std::vector<Fragment> fragments;
  std::vector<at::Tensor> current;
  std::int64_t moment = 0;
  const auto close = [&] {
    if (!current.empty()) fragments.emplace_back(std::exchange(current, {}), first_moment + moment);
  };
  std::uint64_t before = 0;
  for (const at::Tensor& tensor : averaged) {
    // A tensor belongs to the part that contains the tensor's middle byte.
    const std::uint64_t middle = before + tensor.nbytes() / 2;
    const auto part =
        static_cast<std::int64_t>(std::min(parts - 1, middle * parts / std::max<std::uint64_t>(bytes, 1)));
    const bool other_dtype = !current.empty() && current.front().scalar_type() != tensor.scalar_type();
    if (part != moment || other_dtype) close();
    moment = part;
    current.push_back(tensor);
    before += tensor.nbytes();
  }
  close();
  return fragments;
}

ParameterAverage::ParameterAverage(const std::vector<at::Tensor>& parameters,
                                   const std::vector<at::Tensor>& buffers, const Group& group,
                                   const LocalSgdOptions& options)
    : group_(group), options_(options) {
  for (Fragment& fragment : cut_into_fragments(parameters, options.fragments, 0))
    parts_.push_back({.fragment = std::move(fragment), .anchored = options.outer == "diloco"});
  for (Fragment& fragment : cut_into_fragments(buffers, 1, options.fragments - 1))
    parts_.push_back({.fragment = std::move(fragment)});
  restart();
}

void ParameterAverage::restart() {
  for (Part& part : parts_) {
    drop(part);
    if (part.anchored) part.anchor = part.fragment.flat();
    part.momentum.reset();
  }
}

void ParameterAverage::after_step(std::int64_t step) {
  spans_.clear();
  for (Part& part : parts_) {
    if (part.sum.defined() && part.counts_after <= step) take(part);
  }
  for (Part& part : parts_) {
    // The last fragment's moment is the end of the period; the moments of the others are before it.
    const std::int64_t moment = options_.sync_period * (part.fragment.moment() + 1) / options_.fragments;
    if (step % options_.sync_period != moment % options_.sync_period) continue;
    launch(part, step);
    if (options_.sync_delay == 0) take(part);
  }
}

void ParameterAverage::launch(Part& part, std::int64_t step) {
  part.sum = part.fragment.flat();
  if (options_.sync_delay > 0) part.sent = part.sum.clone();
  part.counts_after = step + options_.sync_delay;
  part.launched_ns = monotonic_ns();
  if (group_.size() == 1) return;
  std::vector<at::Tensor> tensors{part.sum};
  part.work = group_.backend()->allreduce(tensors);
}

void ParameterAverage::take(Part& part) {
  const torch::NoGradGuard no_grad;
  const std::int64_t begin = monotonic_ns();
  if (part.work) part.work->wait();
  part.work.reset();
  const std::int64_t end = monotonic_ns();
  at::Tensor mean = std::exchange(part.sum, {});
  spans_.push_back({.name = "all_reduce",
                    .lane = Lane::communication,
                    .begin_ns = part.launched_ns,
                    .end_ns = end,
                    .bucket = part.fragment.moment(),
                    .bytes = mean.nbytes(),
                    .queued_ns = part.launched_ns,
                    .exposed_ns = end - begin,
                    .waited_ns = begin});
  mean.div_(group_.size());
  if (part.anchored) {
    const at::Tensor gradient = part.anchor - mean;
    if (part.momentum.defined()) {
      part.momentum.mul_(options_.outer_momentum).add_(gradient);
    } else {
      part.momentum = gradient.clone();
    }
    part.anchor.sub_(gradient.add_(part.momentum, options_.outer_momentum), options_.outer_learning_rate);
    mean = part.anchor;
  }
  if (part.sent.defined()) {
    part.fragment.advance(mean - std::exchange(part.sent, {}));
  } else {
    part.fragment.assign(mean);
  }
}

void ParameterAverage::drop(Part& part) {
  if (part.work) part.work->wait();
  part.work.reset();
  part.sum.reset();
  part.sent.reset();
}

std::vector<at::Tensor> ParameterAverage::values() const {
  std::vector<at::Tensor> values;
  for (const Part& part : parts_) values.push_back(part.fragment.flat());
  return values;
}

void ParameterAverage::assign(const std::vector<at::Tensor>& values) const {
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i].fragment.assign(values[i]);
}

std::vector<at::Tensor> ParameterAverage::mean_values() const {
  std::vector<at::Tensor> means = values();
  if (group_.size() == 1) return means;
  for (at::Tensor& mean : means) {
    all_reduce(mean, group_);
    mean.div_(group_.size());
  }
  return means;
}

CommunicationState ParameterAverage::state() const {
  CommunicationState state;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    if (part.anchor.defined()) state[str("anchor.", i)] = part.anchor.clone();
    if (part.momentum.defined()) state[str("momentum.", i)] = part.momentum.clone();
    if (!part.sum.defined()) continue;
    if (part.work) part.work->wait();
    state[str("sum.", i)] = part.sum.clone();
    state[str("sent.", i)] = part.sent.clone();
    state[str("counts_after.", i)] = torch::tensor({part.counts_after}, torch::kInt64);
  }
  return state;
}

bool ParameterAverage::restore(const CommunicationState& state) {
  const auto saved = [&](const char* what, std::size_t i) {
    const auto found = state.find(str(what, ".", i));
    return found == state.end() ? at::Tensor() : found->second;
  };
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const at::Tensor anchor = saved("anchor", i);
    if (anchor.defined() != parts_[i].anchored) return false;
    if (anchor.defined() && anchor.sizes() != parts_[i].anchor.sizes()) return false;
  }
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].anchored) parts_[i].anchor = saved("anchor", i).clone();
    const at::Tensor momentum = saved("momentum", i);
    parts_[i].momentum = momentum.defined() ? momentum.clone() : at::Tensor();
    drop(parts_[i]);
  }
  return true;
}

bool ParameterAverage::restore_under_way(const CommunicationState& state) {
  const auto fits = [&](const std::string& name, const at::Tensor& like) {
    const auto found = state.find(name);
    return found != state.end() && found->second.sizes() == like.sizes() &&
           found->second.scalar_type() == like.scalar_type();
  };
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (!state.contains(str("sum.", i))) continue;
    const at::Tensor values = parts_[i].fragment.flat();
    if (!fits(str("sum.", i), values) || !fits(str("sent.", i), values) ||
        !fits(str("counts_after.", i), torch::zeros({1}, torch::kInt64)))
      return false;
    found.push_back(i);
  }
  for (const std::size_t i : found) {
    Part& part = parts_[i];
    part.sum =
        state.at(str("sum.", i)).to(part.fragment.flat().device(), /*non_blocking=*/false, /*copy=*/true);
    part.sent = state.at(str("sent.", i)).to(part.sum.device(), /*non_blocking=*/false, /*copy=*/true);
    part.counts_after = state.at(str("counts_after.", i)).item<std::int64_t>();
    part.launched_ns = monotonic_ns();
  }
  return true;
}

}  // namespace rondo
