#include "rondo/parallel/replicas/replica_gradients.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "rondo/backend/requests/dense_tensor.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/collective/reduction.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/options/option.h"
#include "rondo/parallel/replicas/replica_threads.h"

namespace rondo {
namespace {

// Alignment of parts, so that no two replicas write to one cache line.
constexpr std::size_t kPartAlignment = 64;

constexpr std::pair<const char*, CrossDeviceOps> kCrossDeviceOps[] = {
    {"all_reduce", CrossDeviceOps::all_reduce},
    {"hierarchical_copy", CrossDeviceOps::hierarchical_copy},
    {"nccl", CrossDeviceOps::nccl},
    {"one_device", CrossDeviceOps::one_device}};

bool is_dense_on_cpu(const at::Tensor& gradient) {
  return gradient.defined() && !gradient.is_sparse() && gradient.is_cpu();
}

// Writes the weighted mean of `sources` to `destinations`; without weights, their sum.
void reduce_to(DType type, std::size_t elements, const std::vector<const std::byte*>& sources,
               const std::vector<std::byte*>& destinations, const std::vector<double>& weights) {
  const bool equal =
      std::all_of(weights.begin(), weights.end(), [&](double weight) { return weight == weights.front(); });
  ReductionTask task{.type = type,
                     .reduction = weights.empty() ? Reduction::sum : Reduction::average,
                     .sources = sources,
                     .destinations = destinations,
                     .elements = elements,
                     .weights = {}};
  if (!equal) task.weights = weights;
  reduce(task);
}

}  // namespace

CrossDeviceOps parse_cross_device_ops(const std::string& text, const std::string& what) {
  for (const auto& [name, ops] : kCrossDeviceOps) {
    if (text == name) return ops;
  }
  throw UsageError(str(what, " ", text, ": expected ", list_with_or(cross_device_ops_names())));
}

std::vector<std::string> cross_device_ops_names() {
  std::vector<std::string> names;
  for (const auto& [name, ops] : kCrossDeviceOps) names.emplace_back(name);
  return names;
}

ReplicaGradients::ReplicaGradients(ReplicaThreads& threads, const std::vector<torch::nn::Module*>& models,
                                   const Options& options)
    : threads_(threads), options_(options), slots_(models.size()) {
  for (const torch::nn::Module* model : models) {
    std::vector<at::Tensor>& parameters = parameters_.emplace_back();
    names_.clear();
    for (const ModelTensor& parameter : tensors_of(*model).parameters) {
      if (!parameter.tensor.requires_grad()) continue;
      names_.push_back(parameter.name);
      parameters.push_back(parameter.tensor);
    }
  }
  for (Slot& slot : slots_) slot.places.resize(names_.size());
  combined_.resize(names_.size());
}

void ReplicaGradients::combine(double weight) {
  const int replica = threads_.current();
  publish(replica, weight);
  threads_.meet();
  if (replica == 0) met_ns_ = monotonic_ns();
  if (complete(replica)) threads_.meet();
  const std::vector<double> weights = this->weights();
  const std::vector<Segment> segments = this->segments();
  switch (options_.ops) {
    case CrossDeviceOps::all_reduce:
      reduce_in_parts(segments, replica, weights);
      break;
    case CrossDeviceOps::hierarchical_copy:
      reduce_in_pairs(segments, replica, weights);
      break;
    case CrossDeviceOps::nccl:
      reduce_by_engines(replica, weights);
      break;
    case CrossDeviceOps::one_device:
      reduce_at_first(segments, replica, weights);
      break;
  }
  if (replica == 0) reduce_others(weights);
  threads_.meet();
  take_others(replica);
}

void ReplicaGradients::publish(int replica, double weight) {
  Slot& slot = slots_[static_cast<std::size_t>(replica)];
  slot.weight = weight;
  const std::vector<at::Tensor>& parameters = parameters_[static_cast<std::size_t>(replica)];
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor gradient = parameters[i].grad();
    Place& place = slot.places[i];
    if (is_dense_on_cpu(gradient)) {
      if (!gradient.is_non_overlapping_and_dense()) {
        gradient = gradient.contiguous();
        parameters[i].mutable_grad() = gradient;
      }
      place.data = static_cast<std::byte*>(gradient.data_ptr());
    }
    place.gradient = std::move(gradient);
  }
}

bool ReplicaGradients::complete(int replica) {
  bool any = false;
  std::vector<at::Tensor>& parameters = parameters_[static_cast<std::size_t>(replica)];
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    // The first replica with a gradient determines the layout.
    const auto model = std::find_if(slots_.begin(), slots_.end(),
                                    [i](const Slot& slot) { return slot.places[i].gradient.defined(); });
    if (model == slots_.end()) continue;
    const at::Tensor& like = model->places[i].gradient;
    for (std::size_t other = 0; other < slots_.size(); ++other) {
      const at::Tensor& gradient = slots_[other].places[i].gradient;
      if (gradient.defined() && gradient.is_sparse() != like.is_sparse()) {
        const auto first = static_cast<std::size_t>(model - slots_.begin());
        throw UsageError(str("parameter '", names_[i], "' has a ", like.is_sparse() ? "sparse" : "dense",
                             " gradient at replica ", first, " and a ",
                             gradient.is_sparse() ? "sparse" : "dense", " one at replica ", other));
      }
      const bool fits =
          gradient.defined() && (!is_dense_on_cpu(gradient) || gradient.strides() == like.strides());
      any = any || !fits;
    }
  }
  if (!any) return false;
  // All replicas have read the others' gradients before any replica replaces its own.
  threads_.meet();
  Slot& slot = slots_[static_cast<std::size_t>(replica)];
  std::vector<at::Tensor> wanted(parameters.size());
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    for (const Slot& other : slots_) {
      if (!wanted[i].defined()) wanted[i] = other.places[i].gradient;
    }
  }
  threads_.meet();
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& like = wanted[i];
    Place& place = slot.places[i];
    if (!like.defined() || like.is_sparse()) continue;
    if (place.gradient.defined() && place.gradient.strides() == like.strides()) continue;
    const at::Tensor fitting =
        at::zeros_like(like, like.options().device(parameters[i].device()), at::MemoryFormat::Preserve);
    if (place.gradient.defined()) fitting.copy_(place.gradient);
    parameters[i].mutable_grad() = fitting;
    place = {like.is_cpu() ? static_cast<std::byte*>(fitting.data_ptr()) : nullptr, fitting};
  }
  return true;
}

std::vector<double> ReplicaGradients::weights() const {
  std::vector<double> weights;
  if (options_.adds) return weights;
  double total = 0;
  for (const Slot& slot : slots_) total += weights.emplace_back(slot.weight);
  if (total == 0) std::fill(weights.begin(), weights.end(), 1.0);
  return weights;
}

std::vector<ReplicaGradients::Segment> ReplicaGradients::segments() const {
  std::vector<Segment> segments;
  const std::vector<Place>& places = slots_.front().places;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const at::Tensor& gradient = places[i].gradient;
    if (!is_dense_on_cpu(gradient) || gradient.numel() == 0) continue;
    const ElementType type = element_type(gradient.scalar_type(), "gradients of replicas", true);
    segments.push_back({i, type.type, gradient.element_size() / type.per_element,
                        static_cast<std::size_t>(gradient.numel()) * gradient.element_size()});
  }
  return segments;
}

std::vector<std::span<const ReplicaGradients::Segment>> ReplicaGradients::packs_of(
    std::span<const Segment> segments) const {
  std::vector<std::span<const Segment>> packs;
  const std::size_t count =
      options_.num_packs == 0 ? segments.size() : std::min<std::size_t>(segments.size(), options_.num_packs);
  for (std::size_t pack = 0; pack < count; ++pack) {
    const std::size_t begin = segments.size() * pack / count;
    packs.push_back(segments.subspan(begin, segments.size() * (pack + 1) / count - begin));
  }
  return packs;
}

template <class Visit>
void ReplicaGradients::for_part(std::span<const Segment> pack, int replica, const Visit& visit) const {
  std::size_t total = 0;
  for (const Segment& segment : pack) total += segment.bytes;
  const auto replicas = slots_.size();
  const auto edge = [&](std::size_t part) {
    return part == replicas ? total : total * part / replicas / kPartAlignment * kPartAlignment;
  };
  const std::size_t begin = edge(static_cast<std::size_t>(replica));
  const std::size_t end = edge(static_cast<std::size_t>(replica) + 1);
  std::size_t offset = 0;  // offset of the segment in the pack
  for (const Segment& segment : pack) {
    // Parts consist of whole elements, so a boundary inside an element is rounded down.
    const auto inside = [&](std::size_t at) {
      const std::size_t clamped = std::clamp(at, offset, offset + segment.bytes) - offset;
      return clamped / segment.element_bytes * segment.element_bytes;
    };
    const std::size_t from = inside(begin);
    const std::size_t to = inside(end);
    if (to > from) visit(segment, from, to - from);
    offset += segment.bytes;
  }
}

void ReplicaGradients::reduce_in_parts(std::span<const Segment> segments, int replica,
                                       const std::vector<double>& weights) {
  std::vector<const std::byte*> sources(slots_.size());
  std::vector<std::byte*> destinations(options_.to_first_only ? 1 : slots_.size());
  for (const auto& pack : packs_of(segments)) {
    for_part(pack, replica, [&](const Segment& segment, std::size_t offset, std::size_t bytes) {
      for (std::size_t each = 0; each < slots_.size(); ++each) {
        std::byte* const data = slots_[each].places[segment.parameter].data + offset;
        sources[each] = data;
        if (each < destinations.size()) destinations[each] = data;
      }
      reduce_to(segment.type, bytes / segment.element_bytes, sources, destinations, weights);
    });
  }
}

void ReplicaGradients::reduce_in_pairs(std::span<const Segment> segments, int replica,
                                       const std::vector<double>& weights) {
  const auto replicas = static_cast<int>(slots_.size());
  const auto data_of = [&](int each, const Segment& segment) {
    return slots_[static_cast<std::size_t>(each)].places[segment.parameter].data;
  };
  std::vector<double> sums = weights;  // total weight of the replicas that each one represents
  int stride = 1;
  for (; stride < replicas; stride *= 2) {
    for (int each = 0; each + stride < replicas; each += 2 * stride) {
      const auto own = static_cast<std::size_t>(each);
      const auto other = static_cast<std::size_t>(each + stride);
      std::vector<double> pair = {sums[own], sums[other]};
      sums[own] += sums[other];
      if (sums[own] == 0) pair = {1, 1};
      if (each != replica) continue;
      for (const Segment& segment : segments) {
        std::byte* const mine = data_of(each, segment);
        reduce_to(segment.type, segment.bytes / segment.element_bytes,
                  {mine, data_of(each + stride, segment)}, {mine}, pair);
      }
    }
    threads_.meet();
  }
  for (stride /= 2; stride > 0; stride /= 2) {
    if (replica % (2 * stride) == stride) {
      for (const Segment& segment : segments)
        std::memcpy(data_of(replica, segment), data_of(replica - stride, segment), segment.bytes);
    }
    threads_.meet();
  }
}

void ReplicaGradients::reduce_at_first(std::span<const Segment> segments, int replica,
                                       const std::vector<double>& weights) {
  if (replica == 0) {
    for (const Segment& segment : segments) {
      std::vector<const std::byte*> sources;
      for (const Slot& slot : slots_) sources.push_back(slot.places[segment.parameter].data);
      reduce_to(segment.type, segment.bytes / segment.element_bytes, sources,
                {slots_.front().places[segment.parameter].data}, weights);
    }
  }
  threads_.meet();
  if (replica == 0) return;
  for (const Segment& segment : segments) {
    std::memcpy(slots_[static_cast<std::size_t>(replica)].places[segment.parameter].data,
                slots_.front().places[segment.parameter].data, segment.bytes);
  }
}

void ReplicaGradients::reduce_by_engines(int replica, const std::vector<double>& weights) {
  const auto own = static_cast<std::size_t>(replica);
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<at::Tensor> shares;
  for (const Place& place : slots_[own].places) {
    if (!place.gradient.defined() || place.gradient.is_sparse()) continue;
    at::Tensor share = place.gradient.detach();
    // Gradients with weight 0 need not be finite, so they are replaced with zeros.
    if (!weights.empty() && weights[own] == 0) {
      share.zero_();
    } else if (!weights.empty()) {
      share.mul_(weights[own] / total);
    }
    shares.push_back(std::move(share));
  }
  if (options_.engines) options_.engines->all_reduce(replica, shares, options_.num_packs);
}

bool ReplicaGradients::is_other(const at::Tensor& gradient) const {
  if (!gradient.defined()) return false;
  return options_.ops == CrossDeviceOps::nccl ? gradient.is_sparse() : !is_dense_on_cpu(gradient);
}

void ReplicaGradients::reduce_others(const std::vector<double>& weights) {
  double total = 0;
  for (const double weight : weights) total += weight;
  for (std::size_t i = 0; i < combined_.size(); ++i) {
    combined_[i] = at::Tensor();
    std::vector<at::Tensor> shares;
    for (std::size_t each = 0; each < slots_.size(); ++each) {
      const at::Tensor& gradient = slots_[each].places[i].gradient;
      if (!is_other(gradient)) continue;
      shares.push_back(gradient.to(parameters_.front()[i].device()) *
                       (weights.empty() ? 1.0 : weights[each] / total));
    }
    if (shares.empty()) continue;
    if (shares.front().is_sparse()) {
      // Concatenates the rows; coalescing adds rows that several replicas have.
      std::vector<at::Tensor> rows, values;
      for (const at::Tensor& share : shares) {
        rows.push_back(share._indices());
        values.push_back(share._values());
      }
      combined_[i] =
          at::_sparse_coo_tensor_unsafe(at::cat(rows, 1), at::cat(values, 0), shares.front().sizes())
              .coalesce();
    } else {
      combined_[i] = shares.front();
      for (std::size_t share = 1; share < shares.size(); ++share) combined_[i] += shares[share];
    }
  }
}

void ReplicaGradients::take_others(int replica) {
  if (std::none_of(combined_.begin(), combined_.end(), [](const at::Tensor& each) { return each.defined(); }))
    return;
  const std::vector<at::Tensor>& parameters = parameters_[static_cast<std::size_t>(replica)];
  for (std::size_t i = 0; i < combined_.size(); ++i) {
    if (!combined_[i].defined()) continue;
    // Copies, because clipping changes gradients in place.
    parameters[i].mutable_grad() = combined_[i].to(parameters[i].device(), combined_[i].scalar_type(),
                                                   /*non_blocking=*/false, /*copy=*/true);
  }
}

void ReplicaGradients::copy_from_first() {
  threads_.meet();
  const int replica = threads_.current();
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor>& from = parameters_.front();
  const std::vector<at::Tensor>& to = parameters_[static_cast<std::size_t>(replica)];
  for (std::size_t i = 0; replica != 0 && i < to.size(); ++i) {
    const at::Tensor& gradient = from[i].grad();
    if (!gradient.defined()) {
      to[i].mutable_grad() = at::Tensor();
    } else if (to[i].grad().defined() && !gradient.is_sparse() && !to[i].grad().is_sparse()) {
      to[i].grad().copy_(gradient);
    } else {
      to[i].mutable_grad() = gradient.clone();
    }
  }
  threads_.meet();
}

}  // namespace rondo
