#include "rondo/parallel/tensor/tensor_parallel_model.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/strategy/norms_of_parts.h"

namespace rondo {
namespace {

// This rank's and those that have the same part of the model.
std::vector<int> ranks_of_part(const Context& context) {
  for (const std::vector<int>& ranks : ranks_along(context.mesh(), {"data", "context", "expert"})) {
    if (std::find(ranks.begin(), ranks.end(), context.rank()) != ranks.end()) return ranks;
  }
  return {};
}

Group group_along(const Context& context, const std::string& dimension) {
  return size_along(context.mesh(), dimension) > 1 ? context.group(dimension) : Group();
}

}  // namespace

TensorParallelModel::TensorParallelModel(std::unique_ptr<PreparedModel> part, DividedModel divided,
                                         Context context)
    : ModelParts(context.world()),
      part_(std::move(part)),
      divided_(std::move(divided)),
      context_(std::move(context)),
      tensor_(group_along(context_, "tensor")),
      sequence_(group_along(context_, "context")) {
  set_casts(part_->casts());
  set_division({.sequence = sequence_, .classes = divided_.divided_outputs ? tensor_ : Group()});
  // A pipeline hears all ranks of the mesh.
  if (has_peers(tensor_) && size_along(context_.mesh(), "pipeline") == 1) stops_.emplace(context_.world());
}

void TensorParallelModel::start_pass(const LocalBatch& batch) {
  // What evaluation has communicated is not the step's.
  if (std::exchange(step_begins_, false)) take_parallel_communication_time();
  part_->begin_step(batch);
}

// Ranks with the same samples have the same sums; a request to stop may have reached only one of them, of
// which those that part_ tells it may be others than this rank's.
void TensorParallelModel::announce(const StepTotals& mine) {
  StepTotals together = mine;
  if (has_peers(sequence_) && sequence_.rank() > 0) together.samples = 0;
  part_->announce(together);
  if (stops_) stops_->start({.totals = {.stop = mine.stop}});
}

StepTotals TensorParallelModel::totals() {
  StepTotals totals = part_->totals();
  if (stops_) totals.stop = stops_->totals().stop;
  return totals;
}

void TensorParallelModel::finish_pass() {
  part_->finish_backward();
  communication_ = take_parallel_communication_time();
  step_begins_ = true;
}

PartsTraits TensorParallelModel::traits() const {
  PartsTraits traits = part_->parts().traits();
  traits.optimizes_shards = true;
  traits.optimizes_whole_model = false;
  return traits;
}

std::string TensorParallelModel::restore_communication(const std::vector<CommunicationState>& of_ranks) {
  if (of_ranks.size() != static_cast<std::size_t>(group().size())) return part_->restore_communication({});
  std::vector<CommunicationState> of_replicas;
  for (const int rank : ranks_of_part(context_))
    of_replicas.push_back(of_ranks[static_cast<std::size_t>(rank)]);
  return part_->restore_communication(of_replicas);
}

CommunicationTimes TensorParallelModel::communication_times() const {
  CommunicationTimes times = part_->communication_times();
  times.busy += communication_;
  times.exposed += communication_;
  return times;
}

NormSum TensorParallelModel::norm_sum() {
  NormSum of_part;  // empty: the part's parameters are whole
  if (part_->parts().optimizes_shards()) {
    of_part = part_->parts().norm_sum();
    if (!of_part) return {};
  }
  PartSet divided;
  for (const Shard& shard : part_->parts().shards()) {
    if (divided_.addresses.contains(shard.name)) divided.insert(shard.local.unsafeGetTensorImpl());
  }
  return [of_part = std::move(of_part), divided = std::move(divided), tensor = tensor_](
             const std::vector<at::Tensor>& parameters, at::Tensor& squares) {
    if (of_part) of_part(parameters, squares);
    if (has_peers(tensor)) add_norms_of_parts(parameters, divided, tensor, squares);
  };
}

std::vector<Shard> TensorParallelModel::in_full_model(std::vector<Shard> of_part) const {
  const int parts = has_peers(tensor_) ? tensor_.size() : 1;
  for (Shard& shard : of_part) {
    const auto found = divided_.addresses.find(shard.name);
    if (found == divided_.addresses.end()) {
      shard.replica = shard.replica * parts + std::max(0, tensor_.rank());
      continue;
    }
    const Shard& address = found->second;
    // Of a part in blocks a box of its own would be a piece of each.
    const bool fits = shard.global_sizes == address.local_sizes() &&
                      (address.blocks == 1 || shard.sizes == shard.global_sizes);
    if (!fits) {
      throw Error(str("'", shard.name, "': ", describe_address(shard),
                      " of this rank's part has no place in ", describe_address(address)));
    }
    shard.global_sizes = address.global_sizes;
    shard.blocks = address.blocks;
    if (address.blocks > 1) shard.sizes = address.sizes;
    for (std::size_t d = 0; d < shard.offsets.size(); ++d) shard.offsets[d] += address.offsets[d];
  }
  return of_part;
}

}  // namespace rondo
