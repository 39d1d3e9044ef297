#include "rondo/parallel/sharded/sharded_setup.h"

#include <torch/nn/module.h>
#include <torch/types.h>

#include <algorithm>

#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/memory/tracker.h"
#include "rondo/parallel/gradients/model_agreement.h"
#include "rondo/parallel/sharded/gradient_buffers.h"
#include "rondo/parallel/sharded/shard_module.h"
#include "rondo/precision/autocast.h"

namespace rondo {
namespace {

// Enables activation checkpointing for exactly the units for which the plan does. A plan in short form
// without any checkpointing leaves units unchanged.
void checkpoint_as_planned(const cost::StepPlan& plan, const std::vector<ModelUnit>& units) {
  const bool says_so = plan.schedule || std::any_of(plan.units.begin(), plan.units.end(),
                                                    [](const auto& unit) { return unit.choice.checkpoint; });
  if (!says_so) return;
  for (const ModelUnit& unit : units) {
    const bool checkpoint = plan.find(unit.name)->choice.checkpoint;
    if (unit.state != nullptr) {
      unit.state->set_checkpointed(checkpoint);
    } else if (checkpoint) {
      throw UsageError(
          str(plan.source, ": '", unit.name,
              "' belongs to no unit of the model and cannot be checkpointed; remove its \"checkpoint\""));
    }
  }
}

// Returns the model's units without ignored parameters, and without units that have none left.
std::vector<ModelUnit> units_without(const torch::nn::Module& module,
                                     const std::vector<std::string>& ignored) {
  std::vector<ModelUnit> units = partition_into_units(module);
  if (ignored.empty()) return units;
  for (ModelUnit& unit : units) {
    std::erase_if(unit.parameters, [&](const ModelTensor& parameter) {
      return std::find(ignored.begin(), ignored.end(), parameter.name) != ignored.end();
    });
  }
  std::erase_if(units, [](const ModelUnit& unit) { return unit.parameters.empty(); });
  if (units.empty()) throw UsageError("all parameters of the model are ignored: none is left to train");
  return units;
}

// Throws UsageError if a unit exceeds the memory limit: a unit is not divided while it computes.
void require_units_fit(const std::vector<ModelUnit>& units) {
  const std::optional<Bytes> limit = replica_memory_tracker().limit();
  if (!limit) return;
  for (const ModelUnit& unit : units) {
    const Bytes bytes{unit.parameter_bytes()};
    if (bytes <= *limit) continue;
    throw UsageError(str("unit '", unit.name, "' has ", to_string(bytes),
                         " of parameters, which are whole while it computes, and the limit of this rank's "
                         "memory is ",
                         to_string(*limit),
                         ". Declare its layers as smaller rondo::Unit (rondo/nn.h), or raise the tracker's "
                         "limit (--memory-limit)"));
  }
}

// Describes the strategies of a plan, in one line if all units have the same.
std::vector<std::string> strategies_of(const cost::StepPlan& plan) {
  std::vector<std::string> lines;
  for (const cost::PlannedUnit& unit : plan.units)
    lines.push_back(str("strategy of unit '", unit.name, "' = ", cost::name(unit.choice.strategy)));
  const bool is_uniform =
      std::all_of(plan.units.begin(), plan.units.end(), [&](const cost::PlannedUnit& unit) {
        return unit.choice.strategy == plan.units.front().choice.strategy;
      });
  if (is_uniform && !plan.units.empty())
    return {str("strategy = ", cost::name(plan.units.front().choice.strategy))};
  return lines;
}

void verify_same_setup(const ModelTensors& tensors, const cost::StepPlan& plan, const ShardedOptions& options,
                       const Group& world) {
  std::vector<std::string> agreed = strategies_of(plan);
  agreed.insert(
      agreed.end(),
      {str("find_unused_parameters = ", options.find_unused_parameters),
       str("broadcast_buffers = ", options.broadcast_buffers), str("shard_ranks = ", options.shard_ranks),
       str("reshard_ranks = ", options.reshard_ranks), str("reduce_every_pass = ", options.reduce_every_pass),
       str("codec = ", options.codec), str("mixed_precision = '", to_text(options.mixed_precision), "'")});
  for (const std::string& name : options.ignored) agreed.push_back(str("ignored '", name, "'"));
  verify_same_model(tensors, agreed, world);
}

// Returns `count` ranks: first, first + stride, ...
std::vector<int> every(int first, int stride, int count) {
  std::vector<int> ranks;
  for (int i = 0; i < count; ++i) ranks.push_back(first + i * stride);
  return ranks;
}

// Divides `ranks` ranks into groups of `size` neighbours and returns the one with this rank.
Group group_of_neighbours(Context& context, int size, int ranks) {
  Group own;
  for (int first = 0; first < ranks; first += size) {
    const Group group = context.new_group(every(first, 1, size));
    if (group.member()) own = group;
  }
  return own;
}

// Returns the parameters to which the policy's param_dtype does not apply.
std::set<const c10::TensorImpl*> uncast_parameters(const torch::nn::Module& module,
                                                   const MixedPrecisionPolicy& policy) {
  std::set<const c10::TensorImpl*> uncast;
  if (!policy.keep_batchnorm_fp32) return uncast;
  for (const auto& layer : module.modules(/*include_self=*/false)) {
    if (!is_batch_norm(*layer)) continue;
    for (const at::Tensor& parameter : layer->parameters(/*recurse=*/false))
      uncast.insert(parameter.unsafeGetTensorImpl());
  }
  return uncast;
}

}  // namespace

ShardedSetup::ShardedSetup(torch::nn::Module& module, const ModelTensors& tensors, const PlanMaker& make_plan,
                           Context& context, const ShardedOptions& options)
    : in_background(context.world().traits().progresses_in_background && context.world_size() > 1) {
  std::vector<ModelUnit> model_units = units_without(module, options.ignored);
  require_units_fit(model_units);
  refuse_sparse_layers(module);
  std::vector<cost::PlannedUnit> known;
  for (const ModelUnit& unit : model_units)
    known.push_back({.name = unit.name, .choice = {}, .parameter_bytes = unit.parameter_bytes()});
  plan = make_plan(known, context.world_size());
  verify_same_setup(tensors, plan, options, context.world());
  broadcast_coalesced(tensors.all_tensors(), context.world(), 0);
  make_groups(context, options);
  environment.segment_bytes = in_background ? options.segment_bytes : Bytes{};
  if (options.codec != "none" && context.world_size() > 1) environment.codec = options.codec;
  environment.buffers = &buffers;
  environment.policy = options.mixed_precision;
  environment.uncast = uncast_parameters(module, options.mixed_precision);
  prepare_offload(tensors, context.rank(), options.offload);
  // A pipeline stage is one unit for data parallelism, independent of its layers, so it gets no warning.
  const bool could_have_units = !is_parameter_module(module);
  group_units(std::move(model_units), context, options, could_have_units);
  // The plan's memory model has accounted for every buffer, so free buffers are not kept.
  buffers.keep_free(!launches);
  make_queue(context, options);
  make_units();
  std::vector<ModelTensor> parameters;
  for (const auto& unit : units) {
    for (ModelTensor& parameter : unit->optimized()) parameters.push_back(std::move(parameter));
  }
  // Keeps the model's order, so that an optimizer's groups are the same as under other strategies.
  const auto place = [&](const ModelTensor& parameter) {
    return std::find_if(tensors.parameters.begin(), tensors.parameters.end(),
                        [&](const ModelTensor& tensor) { return tensor.name == parameter.name; });
  };
  std::sort(parameters.begin(), parameters.end(),
            [&](const ModelTensor& a, const ModelTensor& b) { return place(a) < place(b); });
  optimized = make_parameter_module(parameters);
}

void ShardedSetup::make_groups(Context& context, const ShardedOptions& options) {
  const int ranks = context.world_size();
  const int shard_ranks = options.shard_ranks > 0 ? options.shard_ranks : ranks;
  environment.shard_group = context.world();
  if (shard_ranks < ranks) {
    environment.shard_group = group_of_neighbours(context, shard_ranks, ranks);
    for (int index = 0; index < shard_ranks; ++index) {
      const Group group = context.new_group(every(index, shard_ranks, ranks / shard_ranks));
      if (group.member()) environment.replica_group = group;
    }
  }
  environment.in_place =
      !in_background && ranks > 1 && shard_ranks == ranks && context.world().traits().parameters_in_place;
  if (options.reshard_ranks <= 1) return;
  // Corresponds to the inner dimension of the mesh that FSDP2 makes of the shard group.
  if (shard_ranks % options.reshard_ranks != 0) {
    throw UsageError(str("reshard_after_forward ", options.reshard_ranks, " does not divide the ",
                         shard_ranks, " ranks among which the model is sharded into equal groups"));
  }
  if (options.reshard_ranks < shard_ranks)
    environment.reshard_group = group_of_neighbours(context, options.reshard_ranks, ranks);
}

void ShardedSetup::prepare_offload(const ModelTensors& tensors, int rank, const OffloadOptions& options) {
  if (!options.any()) return;
  for (const ModelTensor& parameter : tensors.parameters) {
    if (parameter.tensor.is_cpu()) continue;
    throw UsageError(str("offload is for models on a CPU device, where it means files; '", parameter.name,
                         "' is on ", parameter.tensor.device().str()));
  }
  files = std::make_unique<OffloadFiles>(options.directory, rank);
  if (options.parameters) environment.files = files.get();
}

void ShardedSetup::group_units(std::vector<ModelUnit> model_units, const Context& context,
                               const ShardedOptions& options, bool could_have_units) {
  std::vector<std::string> names;
  for (const ModelUnit& unit : model_units) names.push_back(unit.name);
  std::vector<Sharding> shardings;
  for (const std::string& name : names) shardings.push_back(plan.find(name)->choice.strategy);
  const bool in_buckets = in_background && !plan.schedule && shardings.front() == Sharding::ddp;
  const bool is_one_unit = model_units.size() == 1 && model_units.front().state == nullptr;
  if (is_one_unit && could_have_units && !in_buckets && context.rank() == 0) {
    log::warning("the model has no rondo::Unit, so it is one unit: all ",
                 to_string(Bytes{model_units.front().parameter_bytes()}),
                 " of its parameters are gathered and reduced at once, and neither memory nor communication "
                 "is spread over the step. Declare its layers as rondo::Unit, or call rondo::wrap_units() "
                 "(rondo/nn.h)");
  }
  if (options.reshard_ranks == 1)
    std::replace(shardings.begin(), shardings.end(), Sharding::zero3, Sharding::zero3_keep);
  checkpoint_as_planned(plan, model_units);
  if (in_background && plan.schedule) launches.emplace(plan, names);
  // A plan decides when each unit is sent. Without a queue, joining units has no benefit.
  const bool by_need = in_background && !launches;
  groups = join_small_units(std::move(model_units), shardings, by_need ? options.fuse_bytes : Bytes{});
  if (by_need) groups = split_root(std::move(groups), options.segment_bytes);
}

void ShardedSetup::make_queue(Context& context, const ShardedOptions& options) {
  std::unique_ptr<Leader> leader;
  if (in_background) {
    // Segments are sent while this thread runs other collectives, so they need a communicator of their own.
    const std::vector<int>& everyone = context.world().ranks();
    if (!environment.replica_group.member()) environment.shard_group = context.new_group(everyone);
    leader = std::make_unique<Leader>(context.new_group(everyone), context.timeout());
  }
  queue = std::make_unique<CommunicationQueue>(
      make_policy({launches ? "plan" : options.schedule, options.schedule_seed}), options.in_flight_bytes,
      std::move(leader), context.world().traits().progresses_in_background);
  environment.queue = queue.get();
}

void ShardedSetup::make_units() {
  std::vector<std::int64_t> owned(static_cast<std::size_t>(environment.shard_group.size()), 0);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    // Places each shared buffer on the rank that owns the fewest bytes, so that ranks own about equal
    // amounts.
    const std::uint64_t bytes = groups[i].unit.parameter_bytes();
    const auto owner = std::min_element(owned.begin(), owned.end());
    *owner += static_cast<std::int64_t>(bytes);
    UnitEnvironment own = environment;
    if (launches)
      own.segment_bytes.count = static_cast<std::uint64_t>(
          divide_rounding_up(static_cast<std::int64_t>(bytes), launches->segments(i)));
    units.push_back(std::make_unique<ShardedUnit>(groups[i].unit, groups[i].sharding, own,
                                                  static_cast<int>(owner - owned.begin())));
  }
}

}  // namespace rondo
