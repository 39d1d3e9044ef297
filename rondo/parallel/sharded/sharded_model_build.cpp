#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>
#include <numeric>

#include "rondo/backend/native/native_backend.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/memory/ledger.h"
#include "rondo/parallel/ddp/coalesced_broadcast.h"
#include "rondo/parallel/ddp/model_agreement.h"
#include "rondo/parallel/sharded/sharded_model.h"
#include "rondo/parallel/sharded/unit_fusion.h"
#include "rondo/precision/cast_model.h"

namespace rondo {
namespace {

// Switches activation checkpointing on for exactly the units for which a plan says so. A short form that says
// nothing about it leaves units as they are.
void checkpoint_as_planned(const cost::PlanFile& plan, const std::string& source,
                           const std::vector<ModelUnit>& units) {
  const bool says_so = plan.schedule || std::any_of(plan.units.begin(), plan.units.end(),
                                                    [](const auto& unit) { return unit.choice.checkpoint; });
  if (!says_so) return;
  for (const ModelUnit& unit : units) {
    const auto planned = std::find_if(plan.units.begin(), plan.units.end(),
                                      [&](const cost::PlannedUnit& u) { return u.name == unit.name; });
    if (unit.state != nullptr) {
      unit.state->set_checkpointed(planned->choice.checkpoint);
    } else if (planned->choice.checkpoint) {
      throw UsageError(str(source, ": '", unit.name,
                           "' is what no unit of the model holds, and cannot be checkpointed; take "
                           "\"checkpoint\" from it"));
    }
  }
}

// A strategy divides a model between its units and not within one while it computes.
void require_units_fit(const std::vector<ModelUnit>& units) {
  const std::optional<Bytes> limit = process_ledger().limit();
  if (!limit) return;
  for (const ModelUnit& unit : units) {
    const Bytes bytes{unit.parameter_bytes()};
    if (bytes <= *limit) continue;
    throw UsageError(str("unit '", unit.name, "' has ", to_string(bytes),
                         " of parameters, which are whole while it computes, and the limit of this rank's "
                         "memory is ",
                         to_string(*limit),
                         ". Make smaller units of its layers (rondo/nn/unit.h, rondo/nn/wrap.h), or raise "
                         "the limit (--memory-limit)"));
  }
}

std::string describe_draw(const std::vector<std::string>& units, const std::vector<Sharding>& shardings) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < units.size(); ++i)
    parts.push_back(str(units[i], " ", cost::name(shardings[i])));
  return str("strategy random has drawn ", join(parts, ", "));
}

}  // namespace

ShardedModel::ShardedModel(std::shared_ptr<torch::nn::Module> module, const ShardingPlan& plan,
                           Context context, const StrategyOptions& options)
    : original_(std::move(module)),
      context_(std::move(context)),
      tensors_(tensors_of(*original_)),
      announcement_(context_.world()),
      find_unused_(options.find_unused_parameters),
      reduce_every_pass_(options.reduce_every_pass || plan.micro_batches() > 1),
      broadcast_buffers_(options.broadcast_buffers && !tensors_.buffers.empty()),
      prefetch_(options.prefetch),
      gradients_in_flight_(options.gradients_in_flight),
      defers_(dynamic_cast<NativeBackend*>(context_.world().backend().get()) == nullptr &&
              context_.world_size() > 1) {
  require_units_fit(partition_into_units(*original_));
  verify_same_model(options);
  broadcast_coalesced(tensors_.all_tensors(), context_.world(), 0);
  build(plan, options);
}

ShardedModel::~ShardedModel() {
  for (UnitState* state : watched_) {
    state->detach(watch_);
    state->set_casts({});
  }
}

void ShardedModel::verify_same_model(const StrategyOptions& options) {
  DdpOptions agreed;
  agreed.find_unused_parameters = options.find_unused_parameters;
  agreed.broadcast_buffers = options.broadcast_buffers;
  rondo::verify_same_model(tensors_, agreed, context_.world());
}

void ShardedModel::build(const ShardingPlan& plan, const StrategyOptions& options) {
  const int ranks = context_.world_size();
  const int shard_ranks = options.shard_ranks > 0 ? options.shard_ranks : ranks;
  environment_.shard_group = context_.world();
  if (shard_ranks < ranks) {
    for (int first = 0; first < ranks; first += shard_ranks) {
      std::vector<int> members(static_cast<std::size_t>(shard_ranks));
      std::iota(members.begin(), members.end(), first);
      const Group group = context_.new_group(members);
      if (group.member()) environment_.shard_group = group;
    }
    for (int index = 0; index < shard_ranks; ++index) {
      std::vector<int> members;
      for (int rank = index; rank < ranks; rank += shard_ranks) members.push_back(rank);
      const Group group = context_.new_group(members);
      if (group.member()) environment_.replica_group = group;
    }
  }
  environment_.in_place = !defers_ && ranks > 1 && shard_ranks == ranks && registers_allocations();
  environment_.block_bytes = defers_ ? options.block_bytes : Bytes{};
  environment_.buffers = &buffers_;
  environment_.policy = options.mixed_precision;
  if (options.mixed_precision.keep_batchnorm_fp32) {
    for (const auto& module : original_->modules(/*include_self=*/false)) {
      if (!is_batch_norm(*module)) continue;
      for (const at::Tensor& parameter : module->parameters(/*recurse=*/false)) {
        environment_.uncast.insert(parameter.unsafeGetTensorImpl());
      }
    }
  }
  prepare_offload(options.offload);
  if (options.reshard_ranks > 1) make_reshard_group(options.reshard_ranks, shard_ranks);
  std::vector<ModelUnit> model_units = partition_into_units(*original_);
  if (model_units.size() == 1 && model_units.front().state == nullptr && context_.rank() == 0) {
    log::warning("the model has no rondo::Unit, so it is one unit: all ",
                 to_string(Bytes{model_units.front().parameter_bytes()}),
                 " of its parameters are gathered and reduced at once, and neither memory nor communication "
                 "is spread over the step. Make its layers units (rondo/nn/unit.h, rondo/nn/wrap.h)");
  }
  std::vector<UnitSize> sizes;
  std::vector<std::string> names;
  for (const ModelUnit& unit : model_units) {
    names.push_back(unit.name);
    sizes.push_back({unit.name, unit.parameter_bytes()});
  }
  std::vector<Sharding> shardings = plan.assign(sizes, ranks);
  if (plan.is_random() && context_.rank() == 0) log::info(describe_draw(names, shardings));
  if (options.reshard_ranks == 1)
    std::replace(shardings.begin(), shardings.end(), Sharding::zero3, Sharding::zero3_keep);
  if (plan.file() != nullptr) {
    checkpoint_as_planned(*plan.file(), plan.source(), model_units);
    if (defers_ && plan.file()->schedule) launches_.emplace(*plan.file(), names);
  }
  // A plan has counted every buffer.
  buffers_.keep_free(!launches_);
  std::unique_ptr<Leader> leader;
  if (defers_) {
    // Blocks travel while this thread does other things, so they need an engine of their own.
    const std::vector<int>& everyone = context_.world().ranks();
    if (shard_ranks == ranks) environment_.shard_group = context_.new_group(everyone);
    leader = std::make_unique<Leader>(context_.new_group(everyone));
  }
  scheduler_ = std::make_unique<BlockScheduler>(
      make_policy({launches_ ? "plan" : options.schedule, options.schedule_seed}), options.credit_bytes,
      std::move(leader));
  environment_.scheduler = scheduler_.get();

  watch_ = std::make_shared<UnitWatch>(UnitWatch::Events{[this](std::size_t unit) { before_forward(unit); },
                                                         [this](std::size_t unit) { after_forward(unit); },
                                                         [this](std::size_t unit) { before_backward(unit); },
                                                         [this](std::size_t unit) { after_backward(unit); }});
  // A plan says for each unit when it travels; and where nothing is queued there is nothing to gain.
  const Bytes joined = defers_ && !launches_ ? options.fuse_bytes : Bytes{};
  std::vector<UnitGroup> groups = join_small_units(std::move(model_units), shardings, joined);
  std::vector<ModelUnit> of_units;
  for (const UnitGroup& group : groups) of_units.push_back(group.unit);
  std::vector<std::int64_t> owned(static_cast<std::size_t>(environment_.shard_group.size()), 0);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    // Shared buffers go where least is, so that each rank owns its share of them.
    const auto owner = std::min_element(owned.begin(), owned.end());
    *owner += static_cast<std::int64_t>(groups[i].unit.parameter_bytes());
    UnitEnvironment environment = environment_;
    if (launches_) {
      const auto blocks = static_cast<std::uint64_t>(launches_->blocks(i));
      environment.block_bytes = Bytes{(sizes[i].parameter_bytes + blocks - 1) / blocks};
    }
    units_.push_back(std::make_unique<ShardedUnit>(std::move(groups[i].unit), groups[i].sharding, environment,
                                                   static_cast<int>(owner - owned.begin())));
    for (UnitState* state : groups[i].members) {
      UnitCasts casts;
      // Inside the model layers compute with what units give, in param_dtype.
      if (&state->module() == original_.get()) casts.outputs = options.mixed_precision.output_dtype;
      if (options.mixed_precision.cast_forward_inputs) casts.inputs = options.mixed_precision.param_dtype;
      state->set_casts(casts);
      watch_->add(*state, i);
      state->attach(watch_);
      watched_.push_back(state);
    }
    joins_several_.push_back(groups[i].members.size() > 1);
  }
  std::vector<ModelTensor> optimized;
  for (const auto& unit : units_) {
    for (ModelTensor& parameter : unit->optimized()) optimized.push_back(std::move(parameter));
  }
  // In the model's order: an optimizer's groups are then those of any other strategy.
  const auto place = [&](const ModelTensor& parameter) {
    return std::find_if(tensors_.parameters.begin(), tensors_.parameters.end(),
                        [&](const ModelTensor& tensor) { return tensor.name == parameter.name; });
  };
  std::sort(optimized.begin(), optimized.end(),
            [&](const ModelTensor& a, const ModelTensor& b) { return place(a) < place(b); });
  optimized_ = make_parameter_module(optimized);
  progress_.resize(units_.size());
  order_.resize(units_.size());
  std::iota(order_.begin(), order_.end(), 0);
  position_ = order_;
  late_gradients_.emplace(of_units,
                          [this](std::size_t unit) { return in_step_ && progress_[unit].launched; });
}

void ShardedModel::prepare_offload(const OffloadOptions& options) {
  if (!options.any()) return;
  for (const ModelTensor& parameter : tensors_.parameters) {
    if (parameter.tensor.is_cpu()) continue;
    throw UsageError(str("offload is for models on a CPU device, where it means files; '", parameter.name,
                         "' is on ", parameter.tensor.device().str()));
  }
  files_ = std::make_unique<OffloadFiles>(options.directory, context_.rank());
  offloads_optimizer_ = options.optimizer;
  if (options.parameters) environment_.files = files_.get();
}

// Neighbours: FSDP2's inner dimension of the mesh that it makes of the shard group.
void ShardedModel::make_reshard_group(int ranks, int shard_ranks) {
  if (shard_ranks % ranks != 0) {
    throw UsageError(str("reshard_after_forward ", ranks, " does not divide the ", shard_ranks,
                         " ranks among which the model is sharded into equal groups"));
  }
  if (ranks == shard_ranks) return;
  for (int first = 0; first < context_.world_size(); first += ranks) {
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), first);
    const Group group = context_.new_group(members);
    if (group.member()) environment_.reshard_group = group;
  }
}

}  // namespace rondo
