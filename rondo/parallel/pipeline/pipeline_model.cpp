#include "rondo/parallel/pipeline/pipeline_model.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/types.h>

#include <algorithm>
#include <map>
#include <utility>

#include "rondo/backend/collectives.h"
#include "rondo/checkpoint/named_tensors.h"
#include "rondo/nn/autograd_graph.h"
#include "rondo/parallel/experts/expert_strategy.h"
#include "rondo/parallel/sharded/shard_module.h"

namespace rondo {
namespace {

using torch::autograd::variable_list;

// A graph node whose backward passes precomputed gradients on to the parameters.
struct GradientSource final : torch::autograd::Node {
  variable_list apply(variable_list&&) override { return std::move(gradients); }
  variable_list gradients;
};

// Lets autograd accumulate `gradients` into `.grad` of the parameters, so that gradient hooks run.
void hand_over(const Tensors& parameters, Tensors gradients) {
  auto source = make_graph_node<GradientSource>();
  source->gradients = std::move(gradients);
  source->set_next_edges(torch::autograd::collect_next_edges(parameters));
  const at::Tensor one = at::ones({});
  source->add_input_metadata(one);
  torch::autograd::Engine::get_default_engine().execute({torch::autograd::Edge(source, 0)}, {one},
                                                        /*keep_graph=*/false, /*create_graph=*/false,
                                                        /*accumulate_grad=*/true);
}

}  // namespace

PipelineModel::PipelineModel(std::shared_ptr<torch::nn::Module> module, Context context, Strategy& replicas,
                             std::vector<std::vector<int>> owners)
    : ModelParts(context.world()),
      original_(std::move(module)),
      context_(std::move(context)),
      pipeline_(context_.group("pipeline")),
      tensors_(tensors_of(*original_)),
      announcement_(context_.world()) {
  std::vector<std::vector<std::int64_t>> sizes;  // sizes of the parameters on all ranks of a stage together
  for (const ModelTensor& tensor : tensors_.parameters) sizes.push_back(tensor.tensor.sizes().vec());
  if (auto* const experts = dynamic_cast<ExpertStrategy*>(&replicas)) experts->spread(*original_);
  std::map<std::vector<int>, Group> sharing;  // by ranks along the pipeline
  std::vector<ModelTensor> trained;
  for (std::size_t i = 0; i < tensors_.parameters.size(); ++i) {
    const ModelTensor& tensor = tensors_.parameters[i];
    Parameter parameter{
        .name = tensor.name, .model = tensor.tensor, .sizes = std::move(sizes[i]), .owners = owners[i]};
    parameter.own = std::find(owners[i].begin(), owners[i].end(), pipeline_.rank()) != owners[i].end();
    if (owners[i].size() > 1) {
      Group& group = sharing[owners[i]];
      // Creates a group for every pipeline of the mesh, because all ranks must take part in each creation.
      if (!group.member()) {
        for (const std::vector<int>& ranks : ranks_along(context_.mesh(), {"pipeline"})) {
          std::vector<int> members;
          for (const int owner : owners[i]) members.push_back(ranks[static_cast<std::size_t>(owner)]);
          const Group made = context_.new_group(members);
          if (made.member()) group = made;
        }
      }
      parameter.shared = group;
    }
    const at::NoGradGuard no_grad;
    if (!parameter.own) {
      // The empty tensor has as many dimensions as the parameter, as an empty shard has
      // (Shard::local_sizes()).
      std::vector<std::int64_t> nothing(std::max<std::size_t>(1, parameter.model.dim()), 1);
      nothing.front() = 0;
      parameter.model.set_data(at::empty(nothing, parameter.model.options()));
    } else if (!parameter.model.is_contiguous()) {
      parameter.model.set_data(parameter.model.contiguous());
    }
    at::Tensor alias = parameter.model.detach();
    alias.requires_grad_(parameter.model.requires_grad());
    parameter.trained = alias;
    trained.push_back({tensor.name, alias});
    parameters_.push_back(std::move(parameter));
  }
  buffer_owners_.assign(owners.begin() + static_cast<std::ptrdiff_t>(tensors_.parameters.size()),
                        owners.end());
  inner_ = replicas.prepare(make_parameter_module(trained));
  follow();
}

void PipelineModel::follow() {
  for (Parameter& parameter : parameters_) {
    if (parameter.own && parameter.model.data_ptr() != parameter.trained.data_ptr())
      parameter.model.set_data(parameter.trained.detach());
  }
}

void PipelineModel::start_pass(const LocalBatch& batch) {
  inner_->begin_step(batch);
  follow();
}

// Only the first stage, and the first of tensor-parallel ranks, announces samples, so that they are counted
// once. Only the last stage has the loss.
void PipelineModel::announce(const StepTotals& mine) {
  inner_->announce(mine);
  if (pipeline_.size() == 1) return;
  StepTotals told = mine;
  const bool has_tensor = size_along(context_.mesh(), "tensor") > 1;
  if (pipeline_.rank() > 0) told.predictions = told.samples = 0;
  if (has_tensor && context_.group("tensor").rank() > 0) told = {.stop = mine.stop};
  announcement_.start({.totals = told});
}

StepTotals PipelineModel::totals() {
  return pipeline_.size() == 1 ? inner_->totals() : announcement_.totals();
}

void PipelineModel::finish_pass() {
  Tensors parameters, gradients;
  for (Parameter& parameter : parameters_) {
    if (!parameter.trained.requires_grad()) continue;
    at::Tensor gradient = parameter.own ? std::exchange(parameter.model.mutable_grad(), {})
                                        : at::zeros_like(parameter.trained.detach());
    if (parameter.shared.member()) {
      if (!gradient.defined()) gradient = at::zeros_like(parameter.model);
      gradient = gradient.contiguous();
      all_reduce(gradient, parameter.shared);
    }
    if (!gradient.defined()) continue;
    parameters.push_back(parameter.trained);
    gradients.push_back(std::move(gradient));
  }
  hand_over(parameters, std::move(gradients));
  inner_->finish_backward();
}

CommunicationTimes PipelineModel::communication_times() const {
  const CommunicationTimes of_replicas = inner_->communication_times();
  return {of_replicas.busy + waited_, of_replicas.exposed + waited_};
}

std::vector<TraceSpan> PipelineModel::communication_spans() const {
  std::vector<TraceSpan> spans = waits_;
  for (TraceSpan& span : inner_->communication_spans()) spans.push_back(std::move(span));
  return spans;
}

void PipelineModel::share_buffers() {
  for (std::size_t i = 0; i < tensors_.buffers.size(); ++i) {
    at::Tensor buffer = tensors_.buffers[i].tensor;
    if (buffer.numel() == 0) continue;
    const at::NoGradGuard no_grad;
    if (context_.group("data").size() > 1) broadcast(buffer, context_.group("data"));
    if (pipeline_.size() > 1)
      broadcast(buffer, pipeline_, buffer_owners_[i].empty() ? 0 : buffer_owners_[i].front());
  }
}

void PipelineModel::flush_for(ForwardPasses passes) {
  inner_->parts().flush_for(passes);
  follow();
  share_buffers();
}

void PipelineModel::take_values(NewValues values) {
  inner_->parts().take_values(values);
  follow();
}

PartsTraits PipelineModel::traits() const {
  PartsTraits traits = inner_->parts().traits();
  traits.optimizes_shards = true;
  traits.shares_memory = traits.optimizes_whole_model = false;
  return traits;
}

NormSum PipelineModel::norm_sum() {
  if (inner_->parts().optimizes_shards()) return inner_->parts().norm_sum();
  return [](const std::vector<at::Tensor>&, at::Tensor&) {};  // a stage's parameters are whole
}

std::vector<Shard> PipelineModel::shards() {
  const std::vector<Shard> inner = inner_->parts().shards();
  std::vector<Shard> result;
  for (const Parameter& parameter : parameters_) {
    Shard shard = *find_shard(inner, parameter.name);
    if (!parameter.own) {
      shard = flat_shard(parameter.name, parameter.sizes, 0, shard.local.reshape({0}), shard.replica);
      shard.local = find_shard(inner, parameter.name)->local;
    }
    // Ranks of several stages that own a parameter count as its replicas.
    const auto owner = std::find(parameter.owners.begin(), parameter.owners.end(), pipeline_.rank());
    if (parameter.own) {
      shard.replica = shard.replica * static_cast<int>(parameter.owners.size()) +
                      static_cast<int>(owner - parameter.owners.begin());
    }
    result.push_back(std::move(shard));
  }
  return result;
}

std::vector<Shard> PipelineModel::full_copies() {
  std::vector<Shard> copies = inner_->parts().full_copies();
  std::erase_if(copies, [&](const Shard& copy) {
    return std::any_of(parameters_.begin(), parameters_.end(), [&](const Parameter& parameter) {
      return parameter.name == copy.name && !parameter.own;
    });
  });
  return copies;
}

}  // namespace rondo
