#include "rondo/parallel/sharded/sharded_unit.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <tuple>

#include "rondo/backend/collectives.h"
#include "rondo/parallel/sharded/flat_gradients.h"
#include "rondo/parallel/sharded/in_place_gradients.h"
#include "rondo/parallel/sharded/mapped_buffer.h"
#include "rondo/parallel/sharded/shard_collectives.h"

namespace rondo {
namespace {

FlatLayout layout_of(const std::vector<ModelTensor>& parameters, const UnitEnvironment& environment) {
  std::vector<std::int64_t> elements;
  for (const ModelTensor& parameter : parameters) elements.push_back(parameter.tensor.numel());
  const auto width = static_cast<std::int64_t>(parameters.front().tensor.element_size());
  return {elements, environment.shard_group.size(),
          static_cast<std::int64_t>(environment.block_bytes.count) / width};
}

}  // namespace

ShardedUnit::ShardedUnit(ModelUnit unit, Sharding sharding, const UnitEnvironment& environment, int owner)
    : name_(std::move(unit.name)), sharding_(sharding), state_(unit.state), environment_(environment) {
  // A flat buffer has one dtype and device, and frozen parameters need no gradients' memory.
  const auto kind = [](const ModelTensor& parameter) {
    return std::tuple(parameter.tensor.scalar_type(), parameter.tensor.device(),
                      parameter.tensor.requires_grad());
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

void ShardedUnit::add_part(std::vector<ModelTensor> parameters, int owner) {
  const FlatLayout layout = layout_of(parameters, environment_);
  const Group& group = environment_.shard_group;
  const at::TensorOptions options = parameters.front().tensor.options();
  const bool trained = parameters.front().tensor.requires_grad();
  FlatParameters::Memory memory = FlatParameters::Memory::whole;
  at::Tensor shared;
  if (shards_parameters(sharding_)) memory = FlatParameters::Memory::gathered;
  if (shards_optimizer(sharding_) && environment_.in_place && options.device().is_cpu()) {
    // On one host nobody needs a copy: each rank writes its shard where all read.
    shared = map_buffer(group, owner, layout.flat_elements(), options.requires_grad(false));
    if (shared.defined()) memory = FlatParameters::Memory::mapped;
  }
  Part part;
  part.parameters =
      std::make_unique<FlatParameters>(name_, std::move(parameters), layout, group.rank(), memory, shared,
                                       memory != FlatParameters::Memory::mapped || group.rank() == owner);
  if (trained && environment_.in_place && options.device().is_cpu()) {
    part.gradients = std::make_unique<InPlaceGradients>(sharding_, *part.parameters, group);
  } else if (trained) {
    part.gradients = std::make_unique<FlatGradients>(
        FlatGradients::Place{name_, sharding_, group, environment_.replica_group}, *part.parameters,
        *environment_.scheduler, *environment_.buffers);
  }
  for (std::size_t i = 0; i < layout.parameters(); ++i) {
    const at::Tensor& parameter = part.parameters->parameters()[i].tensor;
    if (!shards_optimizer(sharding_)) {
      part.optimized.push_back(parameter);
      continue;
    }
    const FlatLayout::Slice slice = layout.slice(i, group.rank());
    part.optimized.push_back(part.parameters->shard()
                                 .narrow(0, slice.in_shard, slice.of_parameter.size())
                                 .variable_data()
                                 .set_requires_grad(trained));
  }
  parts_.push_back(std::move(part));
}

bool ShardedUnit::trains() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.gradients != nullptr; });
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

bool ShardedUnit::mapped() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) {
    return part.parameters->memory() == FlatParameters::Memory::mapped;
  });
}

void ShardedUnit::start_gather(const BlockOrder& order) {
  if (presence_ != Presence::missing) return;
  presence_ = Presence::gathering;
  const Group& group = environment_.shard_group;
  for (Part& part : parts_) {
    FlatParameters& parameters = *part.parameters;
    if (parameters.memory() == FlatParameters::Memory::mapped) continue;
    if (parameters.memory() == FlatParameters::Memory::whole && part.gradients == nullptr) continue;
    parameters.allocate(*environment_.buffers);
    for (std::size_t block = 0; block < parameters.layout().blocks(); ++block) {
      const auto [slot, priority] = order.of(block, parameters.layout().blocks());
      const at::Tensor own = parameters.block_in_shard(block);
      std::vector<at::Tensor> outputs;
      for (int rank = 0; rank < group.size(); ++rank)
        outputs.push_back(parameters.block_in_flat(rank, block));
      const Bytes bytes{own.nbytes() * static_cast<std::size_t>(group.size())};
      part.gathers.push_back(environment_.scheduler->submit(
          {"all_gather",
           name_,
           block,
           bytes,
           priority,
           {},
           [group, outputs, own] { return start_all_gather(group, outputs, own); },
           slot}));
    }
  }
}

void ShardedUnit::finish_gather() {
  if (presence_ == Presence::missing) start_gather({/*priority=*/INT64_MIN});
  for (Part& part : parts_) {
    for (const BlockScheduler::Ticket ticket : part.gathers) environment_.scheduler->wait(ticket);
    part.gathers.clear();
  }
  presence_ = Presence::ready;
}

void ShardedUnit::release() {
  if (!shards_parameters(sharding_) || presence_ == Presence::missing) return;
  if (presence_ == Presence::gathering) finish_gather();
  bool freed = false;
  for (Part& part : parts_) {
    if (part.parameters->memory() != FlatParameters::Memory::gathered) continue;
    part.parameters->release(*environment_.buffers);
    freed = true;
  }
  if (freed) presence_ = Presence::missing;
}

void ShardedUnit::mark_updated() {
  if (!shards_optimizer(sharding_) || !trains()) return;
  if (shards_parameters(sharding_)) {
    release();
  } else if (environment_.shard_group.size() > 1) {
    presence_ = Presence::missing;
  }
}

void ShardedUnit::adopt_values() {
  for (Part& part : parts_) part.parameters->adopt_values();
}

void ShardedUnit::launch_gradients(const GradientWeight& weight, const BlockOrder& order) {
  for (Part& part : parts_) {
    if (part.gradients) part.gradients->launch(weight, order);
  }
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
      if (std::find(unused.begin(), unused.end(), name) != unused.end()) continue;
      part.optimized[i].mutable_grad() = gradients[i];
    }
    part.gradients->drop();
  }
}

void ShardedUnit::remove_gradients() {
  for (Part& part : parts_) {
    for (at::Tensor& tensor : part.optimized) tensor.mutable_grad().reset();
    if (part.gradients) part.gradients->recycle();
  }
}

std::pair<const ShardedUnit::Part*, std::size_t> ShardedUnit::find(const std::string& parameter) const {
  for (const Part& part : parts_) {
    const std::vector<ModelTensor>& parameters = part.parameters->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (parameters[i].name == parameter) return {&part, i};
    }
  }
  return {nullptr, 0};
}

bool ShardedUnit::has(const std::string& parameter) const { return find(parameter).first != nullptr; }

at::Tensor ShardedUnit::assemble(const std::string& parameter, const at::Tensor& part) const {
  const auto [holder, index] = find(parameter);
  const at::Tensor& shaped = holder->parameters->parameters()[index].tensor;
  if (!shards_optimizer(sharding_)) return part;
  const FlatLayout& layout = holder->parameters->layout();
  // Engines gather equal shapes: every rank's part is padded to the longest.
  std::int64_t longest = 0;
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    longest = std::max(longest, layout.slice(index, rank).of_parameter.size());
  }
  at::Tensor padded = at::zeros({longest}, part.options().requires_grad(false));
  padded.narrow(0, 0, part.numel()).copy_(part.detach());
  const std::vector<at::Tensor> parts = all_gather(padded, environment_.shard_group);
  at::Tensor whole = at::empty(shaped.sizes(), padded.options());
  at::Tensor flat = whole.view({-1});
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const ElementRange range = layout.slice(index, rank).of_parameter;
    flat.narrow(0, range.begin, range.size())
        .copy_(parts[static_cast<std::size_t>(rank)].narrow(0, 0, range.size()));
  }
  return whole;
}

at::Tensor ShardedUnit::part_of(const std::string& parameter, const at::Tensor& whole) const {
  const auto [holder, index] = find(parameter);
  if (!shards_optimizer(sharding_)) return whole;
  const ElementRange range =
      holder->parameters->layout().slice(index, environment_.shard_group.rank()).of_parameter;
  return whole.flatten().narrow(0, range.begin, range.size()).clone();
}

std::vector<std::string> ShardedUnit::without_gradient() const {
  std::vector<std::string> names;
  for (const Part& part : parts_) {
    if (!part.gradients) continue;
    for (const ModelTensor& parameter : part.parameters->parameters()) {
      if (!parameter.tensor.grad().defined()) names.push_back(parameter.name);
    }
  }
  return names;
}

}  // namespace rondo
