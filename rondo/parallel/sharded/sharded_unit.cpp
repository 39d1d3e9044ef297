#include "rondo/parallel/sharded/sharded_unit.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <tuple>

#include "rondo/backend/collectives.h"
#include "rondo/base/text.h"
#include "rondo/memory/scope.h"
#include "rondo/parallel/gradients/fingerprint.h"
#include "rondo/parallel/sharded/shard_collectives.h"
#include "rondo/parallel/sharded/unit_gradients.h"
#include "rondo/parallel/sharded/unit_memory.h"

namespace rondo {
namespace {

FlatLayout layout_of(const std::vector<ModelTensor>& parameters, at::ScalarType compute,
                     const UnitEnvironment& environment) {
  std::vector<std::int64_t> elements;
  for (const ModelTensor& parameter : parameters) elements.push_back(parameter.tensor.numel());
  const auto width = static_cast<std::int64_t>(c10::elementSize(compute));
  return {elements, environment.shard_group.size(),
          static_cast<std::int64_t>(environment.segment_bytes.count) / width};
}

// Returns ddp for a single rank: it has all of every parameter, so there is nothing to gather or free.
// Offloaded parameters are still gathered from their files.
Sharding among_ranks(Sharding sharding, const UnitEnvironment& environment) {
  return environment.shard_group.size() > 1 || environment.files != nullptr ? sharding : Sharding::ddp;
}

}  // namespace

ShardedUnit::ShardedUnit(ModelUnit unit, Sharding sharding, const UnitEnvironment& environment, int owner)
    : name_(std::move(unit.name)),
      sharding_(among_ranks(sharding, environment)),
      state_(unit.state),
      environment_(environment) {
  // A flat buffer has one dtype and device, and frozen parameters need no memory for gradients.
  const auto kind = [this](const ModelTensor& parameter) {
    return std::tuple(parameter.tensor.scalar_type(), compute_dtype(parameter.tensor),
                      parameter.tensor.device(), parameter.tensor.requires_grad());
  };
  while (!unit.parameters.empty()) {
    const auto first = kind(unit.parameters.front());
    const auto rest = std::stable_partition(unit.parameters.begin(), unit.parameters.end(),
                                            [&](const auto& parameter) { return kind(parameter) == first; });
    add_part({unit.parameters.begin(), rest}, owner);
    unit.parameters.erase(unit.parameters.begin(), rest);
  }
  release();
}

at::ScalarType ShardedUnit::compute_dtype(const at::Tensor& parameter) const {
  const bool casts =
      parameter.is_floating_point() && !environment_.uncast.contains(parameter.unsafeGetTensorImpl());
  return casts ? environment_.policy.param_dtype.value_or(parameter.scalar_type()) : parameter.scalar_type();
}

void ShardedUnit::add_part(std::vector<ModelTensor> parameters, int owner) {
  const at::Tensor& first = parameters.front().tensor;
  const at::ScalarType compute = compute_dtype(first);
  const FlatLayout layout = layout_of(parameters, compute, environment_);
  const Group& group = environment_.shard_group;
  const at::TensorOptions options = first.options().requires_grad(false);
  const bool trained = first.requires_grad();
  const bool casts = compute != first.scalar_type();
  FlatParameters::Spec spec{.unit = name_,
                            .rank = group.rank(),
                            .compute = compute,
                            .owns_all = !shards_optimizer(sharding_),
                            .files = environment_.files};
  if (shards_parameters(sharding_)) spec.memory = FlatParameters::Memory::gathered;
  // Parameters in a file cannot be read by other ranks, unless the shared buffer is a copy anyway.
  const bool may_map = environment_.files == nullptr || casts || !shards_parameters(sharding_);
  if (shards_optimizer(sharding_) && environment_.in_place && options.device().is_cpu() && may_map) {
    // On one host ranks need no copies: each rank writes its shard to the shared buffer that all read.
    const MemoryScope scope(MemoryCategory::parameters, name_);
    spec.mapped_flat = map_buffer(group, owner, layout.flat_elements(), options.dtype(compute));
    if (spec.mapped_flat.defined()) spec.memory = FlatParameters::Memory::mapped;
  }
  spec.fills = spec.memory != FlatParameters::Memory::mapped || group.rank() == owner;
  Part part;
  part.parameters = std::make_unique<FlatParameters>(std::move(parameters), layout, std::move(spec));
  const FlatParameters& flat = *part.parameters;
  if (trained) {
    part.gradient_buffers = std::make_unique<GradientBuffers>(
        flat.parameters(), environment_.policy.reduce_dtype.value_or(compute));
  }
  if (trained) {
    part.gradients = std::make_unique<UnitGradients>(
        UnitGradients::Place{
            .unit = name_,
            .sharding = sharding_,
            .shard_group = group,
            .replica_group = environment_.replica_group,
            .codec = environment_.codec,
            .in_place = environment_.in_place && environment_.codec.empty() && options.device().is_cpu()},
        flat, *part.gradient_buffers, *environment_.queue, *environment_.buffers);
  }
  part.optimizes_itself = !shards_optimizer(sharding_) && !flat.has_masters();
  for (std::size_t i = 0; i < layout.parameters(); ++i) {
    part.optimized.push_back(part.optimizes_itself ? flat.parameters()[i].tensor
                                                   : flat.optimized(i).set_requires_grad(trained));
  }
  if (trained && !part.optimizes_itself) part.marks = ZeroGradMarks(part.optimized);
  parts_.push_back(std::move(part));
}

std::size_t ShardedUnit::trained_parameters() const {
  std::size_t count = 0;
  for (const Part& part : parts_) count += part.gradients ? part.parameters->parameters().size() : 0;
  return count;
}

std::vector<ModelTensor> ShardedUnit::optimized() const {
  std::vector<ModelTensor> result;
  for (const Part& part : parts_) {
    for (std::size_t i = 0; i < part.optimized.size(); ++i) {
      result.push_back({part.parameters->parameters()[i].name, part.optimized[i]});
    }
  }
  return result;
}

bool ShardedUnit::ready() const { return presence_ == Presence::ready; }

bool ShardedUnit::readable() const {
  return ready() || std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
           return part.parameters->memory() == FlatParameters::Memory::mapped;
         });
}

bool ShardedUnit::mapped() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return part.parameters->memory() == FlatParameters::Memory::mapped;
  });
}

bool ShardedUnit::has_masters() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.parameters->has_masters(); });
}

void ShardedUnit::start_gather(const SegmentOrder& order) {
  if (presence_ != Presence::missing) return;
  presence_ = Presence::gathering;
  for (Part& part : parts_) {
    if (part.parameters->memory() == FlatParameters::Memory::mapped) continue;
    const bool frozen = part.parameters->memory() == FlatParameters::Memory::whole && !part.gradients;
    if (frozen && !gathers_frozen_) continue;
    part.parameters->allocate(*environment_.buffers);
    if (part.parameters->keeps()) {
      gather_kept_part(part, order);
    } else {
      gather_part(part, order);
    }
  }
}

void ShardedUnit::gather_part(Part& part, const SegmentOrder& order) {
  FlatParameters& parameters = *part.parameters;
  parameters.publish();
  for (std::size_t segment = 0; segment < parameters.layout().segments(); ++segment) {
    std::vector<at::Tensor> outputs;
    for (int rank = 0; rank < environment_.shard_group.size(); ++rank)
      outputs.push_back(parameters.segment_in_flat(rank, segment));
    gather_segment(part, environment_.shard_group, segment, order.of(segment, parameters.layout().segments()),
                   parameters.segment_to_send(segment), std::move(outputs));
  }
}

// Each member has kept the shards of several ranks, one after the other.
void ShardedUnit::gather_kept_part(Part& part, const SegmentOrder& order) {
  const Group& group = environment_.reshard_group;
  const FlatParameters& parameters = *part.parameters;
  const std::size_t segments = parameters.layout().segments();
  const int shards = parameters.layout().ranks() / group.size();
  for (int shard = 0; shard < shards; ++shard) {
    for (std::size_t segment = 0; segment < segments; ++segment) {
      std::vector<at::Tensor> outputs;
      for (int member = 0; member < group.size(); ++member)
        outputs.push_back(parameters.segment_in_flat(member * shards + shard, segment));
      gather_segment(part, group, static_cast<std::size_t>(shard) * segments + segment,
                     order.of(segment, segments), parameters.segment_in_kept(shard, segment),
                     std::move(outputs));
    }
  }
}

void ShardedUnit::gather_segment(Part& part, const Group& group, std::size_t index,
                                 const SegmentOrder::Place& place, const at::Tensor& own,
                                 std::vector<at::Tensor> outputs) {
  const Bytes bytes{own.nbytes() * static_cast<std::size_t>(group.size())};
  part.gathers.push_back(environment_.queue->submit(
      {"all_gather",
       name_,
       index,
       bytes,
       place.priority,
       {},
       [group, outputs = std::move(outputs), own] { return start_all_gather(group, outputs, own); },
       place.slot}));
}

void ShardedUnit::finish_gather() {
  if (presence_ == Presence::missing) start_gather({/*priority=*/INT64_MIN});
  for (Part& part : parts_) {
    for (const CommunicationQueue::Ticket ticket : part.gathers) environment_.queue->wait(ticket);
    part.gathers.clear();
    part.parameters->drop_kept(*environment_.buffers);
    part.parameters->reveal();
  }
  presence_ = Presence::ready;
  gathers_frozen_ = false;
}

void ShardedUnit::release() {
  if (!shards_parameters(sharding_)) return;
  if (presence_ == Presence::gathering) finish_gather();
  bool freed = false;
  for (Part& part : parts_) {
    part.parameters->drop_kept(*environment_.buffers);
    if (part.parameters->memory() != FlatParameters::Memory::gathered) continue;
    part.parameters->release(*environment_.buffers);
    freed = true;
  }
  if (freed) presence_ = Presence::missing;
}

void ShardedUnit::release_until_backward() {
  const Group& group = environment_.reshard_group;
  const bool all_there = presence_ == Presence::ready;
  if (!group.member() || !shards_parameters(sharding_) || !all_there) return release();
  for (Part& part : parts_) {
    if (part.parameters->memory() != FlatParameters::Memory::gathered) continue;
    const int shards = part.parameters->layout().ranks() / group.size();
    part.parameters->keep(group.rank() * shards, shards, *environment_.buffers);
    part.parameters->release(*environment_.buffers);
    presence_ = Presence::missing;
  }
}

void ShardedUnit::mark_updated() {
  if (!trains()) return;
  for (Part& part : parts_) {
    if (part.parameters->memory() != FlatParameters::Memory::gathered) part.parameters->publish();
  }
  if (!shards_optimizer(sharding_)) return;
  if (shards_parameters(sharding_)) {
    release();
  } else if (environment_.shard_group.size() > 1) {
    presence_ = Presence::missing;
  }
}

void ShardedUnit::conceal() {
  for (Part& part : parts_) {
    if (part.gradients) part.parameters->conceal();
  }
}

void ShardedUnit::reveal() {
  for (Part& part : parts_) part.parameters->reveal();
}

const ModelTensor* ShardedUnit::moved() const {
  for (const Part& part : parts_) {
    // If the optimizer updates the model's own parameter, its memory may be anywhere.
    const ModelTensor* const moved =
        part.optimizes_itself ? part.parameters->converted() : part.parameters->moved();
    if (moved != nullptr) return moved;
  }
  return nullptr;
}

std::vector<at::Tensor> ShardedUnit::sharded_parameters() const {
  std::vector<at::Tensor> parameters;
  for (const Part& part : parts_) {
    if (!part.gradients || part.optimizes_itself) continue;
    for (const ModelTensor& parameter : part.parameters->parameters()) parameters.push_back(parameter.tensor);
  }
  return parameters;
}

std::uint64_t ShardedUnit::optimized_fingerprint() const {
  std::uint64_t sum = 0;
  for (const Part& part : parts_) {
    if (!part.gradients || part.optimizes_itself) continue;
    for (const at::Tensor& tensor : part.optimized) sum += fingerprint(tensor);
  }
  return sum;
}

std::uint64_t ShardedUnit::full_fingerprint() const {
  std::uint64_t sum = 0;
  for (const Part& part : parts_) {
    if (!part.parameters->apart() || !part.parameters->allocated()) continue;
    for (const ModelTensor& parameter : part.parameters->parameters()) sum += fingerprint(parameter.tensor);
  }
  return sum;
}

void ShardedUnit::reload_shards() {
  for (Part& part : parts_) part.parameters->reload_shards();
}

std::vector<Shard> ShardedUnit::shards() const {
  const int copy = environment_.replica_group.member() ? environment_.replica_group.rank() : 0;
  const Group& group = environment_.shard_group;
  std::vector<Shard> shards;
  for (const Part& part : parts_) {
    for (std::size_t i = 0; i < part.optimized.size(); ++i) {
      Shard shard = part.parameters->shard(i, part.optimized[i]);
      shard.replica = shards_optimizer(sharding_) ? copy : copy * group.size() + group.rank();
      shards.push_back(std::move(shard));
    }
  }
  return shards;
}

std::vector<Shard> ShardedUnit::full_copies() const {
  std::vector<Shard> copies;
  if (!ready() || !shards_optimizer(sharding_)) return copies;
  for (const Part& part : parts_) {
    if (part.parameters->has_masters()) continue;
    for (const ModelTensor& parameter : part.parameters->parameters())
      copies.push_back(
          full_shard(parameter.name, parameter.tensor.detach(), environment_.shard_group.rank()));
  }
  return copies;
}

void ShardedUnit::publish_shards() {
  for (Part& part : parts_) {
    if (part.parameters->memory() != FlatParameters::Memory::gathered) part.parameters->publish();
  }
  if (shards_parameters(sharding_)) {
    release();
  } else if (shards_optimizer(sharding_) && environment_.shard_group.size() > 1) {
    presence_ = Presence::missing;
    gathers_frozen_ = true;
  }
}

void ShardedUnit::give_back() const {
  for (const Part& part : parts_) part.parameters->give_back();
}

void ShardedUnit::mark_left_gradients() {
  for (Part& part : parts_) {
    keep_uncleared(part);
    part.marks.place();
  }
}

bool ShardedUnit::left_gradients_cleared() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) {
    for (std::size_t i = 0; i < part.optimized.size(); ++i) {
      if (part.marks.is_cleared(i)) return true;
    }
    return false;
  });
}

void ShardedUnit::drop_cleared_gradients() {
  const at::NoGradGuard no_grad;
  for (Part& part : parts_) {
    for (std::size_t i = 0; i < part.optimized.size(); ++i) {
      if (!part.marks.is_cleared(i)) continue;
      part.marks.remove(i);
      if (!part.uncleared.empty()) part.uncleared[i].reset();
      part.parameters->parameters()[i].tensor.mutable_grad().reset();
      part.gradient_buffers->tensors()[i].tensor.mutable_grad().reset();
      // Also clears the sums of passes that were reduced separately.
      const std::vector<at::Tensor>& combined = part.gradients->result();
      if (!combined.empty()) combined[i].zero_();
    }
  }
}

void ShardedUnit::unmark_left_gradients() {
  for (Part& part : parts_) part.marks.remove();
}

void ShardedUnit::hold_gradients() {
  for (Part& part : parts_) {
    if (part.gradient_buffers) part.gradient_buffers->take();
  }
}

void ShardedUnit::start_reduction(const GradientWeight& weight, const SegmentOrder& order) {
  hold_gradients();
  for (Part& part : parts_) {
    if (!part.gradients) continue;
    keep_uncleared(part);
    part.gradients->launch(weight, order);
  }
}

// Matches accumulation in `.grad` in one process. Clones, because the next result may use the same memory.
void ShardedUnit::keep_uncleared(Part& part) {
  if (!part.gradients || part.optimizes_itself) return;
  for (std::size_t i = 0; i < part.optimized.size(); ++i) {
    at::Tensor& gradient = part.optimized[i].mutable_grad();
    if (!gradient.defined() || part.marks.is_mark(i)) continue;
    part.uncleared.resize(part.optimized.size());
    part.uncleared[i] = gradient.clone();
    gradient.reset();
  }
}

bool ShardedUnit::gradients_under_way() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.gradients && part.gradients->launched(); });
}

bool ShardedUnit::gradients_arrived() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return !part.gradients || !part.gradients->launched() || part.gradients->arrived();
  });
}

void ShardedUnit::finish_gradients(bool accumulate) {
  for (Part& part : parts_) {
    if (part.gradients && part.gradients->launched()) part.gradients->finish(accumulate);
  }
}

void ShardedUnit::install_gradients(const std::vector<std::string>& unused) {
  for (Part& part : parts_) {
    if (!part.gradients) continue;
    const std::vector<at::Tensor>& gradients = part.gradients->result();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::string& name = part.parameters->parameters()[i].name;
      const at::Tensor before = part.uncleared.empty() ? at::Tensor() : part.uncleared[i];
      at::Tensor& gradient = part.optimized[i].mutable_grad();
      if (std::find(unused.begin(), unused.end(), name) != unused.end()) {
        if (before.defined()) gradient = before;
        continue;
      }
      gradient = gradients[i];
      if (before.defined()) gradient.add_(before);
    }
    part.uncleared.clear();
    part.gradients->drop();
  }
}

std::vector<at::Tensor> ShardedUnit::gradients() const {
  std::vector<at::Tensor> gradients;
  for (const Part& part : parts_) {
    for (const at::Tensor& tensor : part.optimized) gradients.push_back(tensor.grad());
  }
  return gradients;
}

void ShardedUnit::remove_gradients() {
  for (Part& part : parts_) {
    for (at::Tensor& tensor : part.optimized) tensor.mutable_grad().reset();
    if (part.gradients) part.gradients->recycle();
  }
}

void ShardedUnit::clear_gradients() {
  for (Part& part : parts_) {
    if (part.optimizes_itself) continue;
    for (std::size_t i = 0; i < part.optimized.size(); ++i) {
      if (!part.marks.is_mark(i)) part.optimized[i].mutable_grad().reset();
    }
  }
}

CommState ShardedUnit::gradient_memory() const {
  CommState memory;
  for (const Part& part : parts_) {
    if (!part.gradients) continue;
    for (const auto& [name, tensor] : part.gradients->memory())
      memory[str(name, "/", part.parameters->parameters().front().name)] = tensor;
  }
  return memory;
}

std::vector<std::string> ShardedUnit::without_gradient() {
  hold_gradients();
  std::vector<std::string> names;
  for (const Part& part : parts_) {
    if (!part.gradients) continue;
    for (const ModelTensor& buffer : part.gradient_buffers->tensors()) {
      if (!buffer.tensor.grad().defined()) names.push_back(buffer.name);
    }
  }
  return names;
}

}  // namespace rondo
