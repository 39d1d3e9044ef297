#include "rondo/parallel/tensor/tensor_parallel_model.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/parallel_communication.h"
#include "rondo/nn/tensor_parallel/parallelize.h"
#include "rondo/nn/tensor_parallel/ring_attention.h"
#include "rondo/strategy/clip_shards.h"

namespace rondo {
namespace {

// Parses rules such as "*.up=column,*.down=row".
std::vector<ParallelRules::Rule> parse_rules(const std::string& text) {
  std::vector<ParallelRules::Rule> rules;
  for (const std::string& entry : split(text, ',')) {
    const std::size_t equals = entry.rfind('=');
    if (equals == std::string::npos || equals == 0)
      throw UsageError(str("tensor-rules: '", entry, "' is not PATTERN=STYLE, such as *.up=column"));
    rules.push_back({entry.substr(0, equals),
                     parse_parallel_style(entry.substr(equals + 1), str("tensor-rules ", entry))});
  }
  return rules;
}

ParallelRules rules_for(const torch::nn::Module& module, const TensorOptions& options) {
  if (!options.rules.empty())
    return {.rules = parse_rules(options.rules), .sequence = options.sequence_parallel};
  if (const auto* model = dynamic_cast<const ParallelModel*>(&module))
    return model->parallel_rules(options.sequence_parallel);
  throw UsageError(
      str("strategy tensor: ", module.name(), " does not say how it is divided (gpt and bert do); ",
          "give rules (tensor-rules '*.up=column,*.down=row'), or make it a rondo::ParallelModel"));
}

void divide_sequence(torch::nn::Module& module, const Group& ranks, const TensorOptions& options) {
  if (options.sequence_parallel)
    throw UsageError(str("sequence-parallel divides a sequence that the mesh's context of ", ranks.size(),
                         " ranks divides already"));
  auto* const model = dynamic_cast<ContextParallelModel*>(&module);
  if (model == nullptr) {
    throw UsageError(
        str("a mesh with context: ", module.name(),
            " does not say how its sequence is divided (gpt does); make it a rondo::ContextParallelModel"));
  }
  model->divide_context(ranks);
}

}  // namespace

DividedModel divide_model(torch::nn::Module& module, const Context& context, const TensorOptions& options) {
  const Mesh& mesh = context.mesh();
  if (size_along(mesh, "context") > 1) divide_sequence(module, context.group("context"), options);
  const bool has_tensor =
      std::any_of(mesh.begin(), mesh.end(), [](const auto& dimension) { return dimension.name == "tensor"; });
  if (!has_tensor) return {};
  const Division division = parallelize(module, rules_for(module, options), context.group("tensor"));
  DividedModel divided{.divided_outputs = division.divided_outputs()};
  for (const ModelTensor& parameter : tensors_of(module).parameters) {
    if (const Shard* const address = division.find(parameter.tensor))
      divided.addresses[parameter.name] = *address;
  }
  return divided;
}

void check(const TensorOptions& options) {
  if (!options.rules.empty()) parse_rules(options.rules);
}

namespace {

// Returns the ranks that have the same part of the model as this one, including this rank.
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
  // A pipeline already announces to all ranks of the mesh.
  if (has_peers(tensor_) && size_along(context_.mesh(), "pipeline") == 1) stops_.emplace(context_.world());
}

void TensorParallelModel::start_pass(const LocalBatch& batch) {
  // Resets the timer, so that communication of an evaluation is not attributed to the step.
  if (std::exchange(step_begins_, false)) take_parallel_communication_time();
  part_->begin_step(batch);
}

// Ranks with the same samples have the same sums. A request to stop may have reached only one of them, and
// part_ may announce to other ranks, so stop requests are announced to all ranks separately.
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
  NormSum of_part;  // empty if the part's parameters are whole
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
    // A box within a part that consists of blocks would be a piece of each block.
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
