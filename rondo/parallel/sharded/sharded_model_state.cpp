#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/sharded/sharded_model.h"

// A sharded model's parameters by name: between the ranks' parts and the whole.
namespace rondo {

ShardedUnit& ShardedModel::unit_with(const std::string& parameter) const {
  for (const auto& unit : units_) {
    if (unit->has(parameter)) return *unit;
  }
  throw UsageError(str("the model has no parameter '", parameter, "'"));
}

at::Tensor ShardedModel::assemble(const std::string& parameter, const at::Tensor& part) {
  return unit_with(parameter).assemble(parameter, part);
}

at::Tensor ShardedModel::part_of(const std::string& parameter, const at::Tensor& whole) {
  return unit_with(parameter).part_of(parameter, whole);
}

at::Tensor ShardedModel::whole_parameter(const std::string& parameter) {
  return unit_with(parameter).whole_parameter(parameter);
}

std::int64_t ShardedModel::part_offset(const std::string& parameter) const {
  return unit_with(parameter).part_offset(parameter);
}

void ShardedModel::set_parameter(const std::string& parameter, const at::Tensor& whole) {
  unit_with(parameter).set_parameter(parameter, whole);
  must_meet_ = true;
}

std::vector<std::int64_t> ShardedModel::whole_sizes(const std::string& parameter) {
  return unit_with(parameter).whole_sizes(parameter);
}

void ShardedModel::make_whole() {
  settle();
  whole_ = true;
  for (const std::size_t unit : order_) units_[unit]->start_gather({forward_priority(unit)});
  for (const std::size_t unit : order_) units_[unit]->finish_gather();
}

void ShardedModel::adopt_values() {
  for (const auto& unit : units_) unit->adopt_values();
  must_meet_ = true;
}

void ShardedModel::settle() {
  if (std::exchange(must_meet_, false)) barrier(context_.world());
  for (const std::size_t unit : order_) {
    if (progress_[unit].pending) update(unit);
  }
  for (const std::size_t unit : order_) {
    // Nothing is under way on the group that parts are assembled over; and what is outside all units has no
    // forward in which it could be gathered.
    if (units_[unit]->gathering() || units_[unit]->state() == nullptr) units_[unit]->finish_gather();
  }
}

bool ShardedModel::keeps_masters() const {
  return std::any_of(units_.begin(), units_.end(), [](const auto& unit) { return unit->has_masters(); });
}

bool ShardedModel::optimizes_parts() const { return shards_optimizer_state() || keeps_masters(); }

at::Tensor ShardedModel::cast_input(const at::Tensor& input) const {
  const MixedPrecisionPolicy& policy = environment_.policy;
  const bool casts = policy.param_dtype && policy.cast_forward_inputs && input.is_floating_point();
  return casts ? input.to(*policy.param_dtype) : input;
}

at::Tensor ShardedModel::cast_output(const at::Tensor& output) const {
  const std::optional<at::ScalarType> dtype = environment_.policy.output_dtype;
  return dtype && output.is_floating_point() ? output.to(*dtype) : output;
}

}  // namespace rondo
