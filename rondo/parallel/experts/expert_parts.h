#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rondo/nn/experts/mixture_of_experts.h"
#include "rondo/strategy/model_parts.h"

namespace rondo {

// The layers of experts' parameters, by the names of these in the model.
using ExpertLayers = std::map<std::string, MixtureOfExpertsImpl*>;

// Of a model whose experts are spread over ranks: dense parameters are on every rank in full, of those of
// experts each rank has the rows of its own. Between unshard() and shard_again() the experts' parameters hold
// all rows.
class ExpertParts final : public ModelParts {
 public:
  // `module` and `layers`, which are spread already, outlive the object. `replicas` are the ranks with the
  // same experts as this one. `share_buffers` gives all ranks the buffers of one, if they differ.
  ExpertParts(torch::nn::Module& module, const ExpertLayers& layers, Group world, const Group& replicas,
              std::function<void()> share_buffers);

  void flush_for(ForwardPasses passes) override;
  void take_values(NewValues values) override;
  PartsTraits traits() const override { return {.optimizes_shards = true}; }
  NormSum norm_sum() override;
  std::vector<Shard> shards() override;
  std::vector<ModelTensor> buffers() override;

  // Every parameter holds this rank's rows again. Communicates nothing.
  void shard_again();
  // Of experts, and all others.
  std::vector<ModelTensor> expert_parameters() const;
  std::vector<ModelTensor> dense_parameters() const;

 private:
  struct Parameter {
    ModelTensor entry;
    MixtureOfExpertsImpl* layer;  // null: dense
    at::Tensor rows;  // of this rank, where the layer has it; the parameter's memory but for unshard()
  };

  torch::nn::Module& module_;
  const int replica_;
  const std::function<void()> share_buffers_;
  std::vector<Parameter> parameters_;  // in the model's order
  bool gathered_ = false;
};

}  // namespace rondo
