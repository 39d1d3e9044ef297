#include "rondo/profile/job_profile.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/text.h"
#include "rondo/memory/ledger.h"
#include "rondo/parallel/ddp/in_place_exchange.h"
#include "rondo/profile/over_ranks.h"

namespace rondo {
namespace {

constexpr int kMostMeasurements = 3;

// Every unit's figures as one list, so that ranks can agree on them in one message.
std::vector<double*> times_of(cost::Profile& profile) {
  std::vector<double*> times;
  for (cost::UnitProfile& unit : profile.units) {
    for (double* time : {&unit.forward_s, &unit.backward_s, &unit.recompute_s, &unit.optimizer_s})
      times.push_back(time);
  }
  return times;
}

std::vector<std::uint64_t*> bytes_of(cost::Profile& profile) {
  std::vector<std::uint64_t*> bytes = {&profile.base_bytes};
  for (cost::UnitProfile& unit : profile.units) {
    for (std::uint64_t* value : {&unit.optimizer_bytes, &unit.activation_bytes,
                                 &unit.checkpointed_activation_bytes, &unit.forward_workspace_bytes})
      bytes.push_back(value);
  }
  return bytes;
}

std::vector<std::int64_t*> signed_bytes_of(cost::Profile& profile) {
  std::vector<std::int64_t*> bytes;
  for (cost::UnitProfile& unit : profile.units) {
    bytes.push_back(&unit.backward_workspace_bytes);
    if (unit.checkpointed_backward_workspace_bytes)
      bytes.push_back(&*unit.checkpointed_backward_workspace_bytes);
  }
  return bytes;
}

// Ranks wait for one another in every step, so times are the slowest rank's and bytes the largest's.
void agree(cost::Profile& profile, const Group& group) {
  const std::vector<double*> times = times_of(profile);
  const std::vector<std::uint64_t*> bytes = bytes_of(profile);
  const std::vector<std::int64_t*> signed_bytes = signed_bytes_of(profile);
  std::vector<double> figures;
  for (const double* time : times) figures.push_back(*time);
  for (const std::uint64_t* value : bytes) figures.push_back(static_cast<double>(*value));
  for (const std::int64_t* value : signed_bytes) figures.push_back(static_cast<double>(*value));
  at::Tensor message = at::tensor(figures, at::kDouble);
  all_reduce(message, group, ReduceOp::MAX);
  const double* agreed = message.data_ptr<double>();
  for (double* time : times) *time = *agreed++;
  for (std::uint64_t* value : bytes) *value = static_cast<std::uint64_t>(*agreed++);
  for (std::int64_t* value : signed_bytes) *value = static_cast<std::int64_t>(*agreed++);
}

}  // namespace

cost::Profile profile_job(const Context& context, Model model, const at::Tensor& input,
                          const at::Tensor& target, const JobProfileOptions& options, std::string made_for) {
  const std::uint64_t bucket_bytes = InPlaceExchange::bucket_bytes(tensors_of(*model.module).parameters);
  ModelProfiler profiler(std::move(model), input, target, options.model);
  // All ranks compute at the same time, as in training; and again while somebody's times are not steady.
  double spread = 0;
  for (int measured = 0; measured < kMostMeasurements; ++measured) {
    barrier(context.world());
    profiler.measure();
    spread = over_ranks(profiler.spread(), context.world(), ReduceOp::MAX);
    if (spread <= cost::kSteadySpread) break;
  }
  cost::Profile profile = profiler.profile();
  // Of the engine, whatever is trained on it.
  profile.base_bytes += process_ledger().usage()[MemoryCategory::communication];
  profile.made_for = std::move(made_for);
  profile.spread = spread;
  agree(profile, context.world());
  profile.link = profile_link(context, options.link, [&] { profiler.pass(); });
  if (profile.link.parameters_in_place) profile.base_bytes += bucket_bytes;
  return profile;
}

std::string describe_job(const Model& model, std::int64_t batch_size, const std::string& optimizer,
                         const Context& context) {
  return str(model.name, " ", model.config.dump(), ", batch ", batch_size, " a rank, ", optimizer, ", ",
             context.world_size(), " ranks, engine ", context.backend_name());
}

}  // namespace rondo
