#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <vector>

#include "rondo/nn/model_tensors.h"

namespace rondo {

// Between what a rank's optimizer changes of a prepared model, PreparedModel::module(), and the whole model.
// Parameters are known by name. All ranks make the same calls; one thread uses an object.
class ModelParts {
 public:
  virtual ~ModelParts() = default;

  // Afterwards this rank's model has, until the next begin_step(), all parameters as the last step left them:
  // it may compute without the other ranks. Collective.
  virtual void make_whole() = 0;
  // After a change of the model's values from outside, the same on all ranks (a checkpoint was loaded):
  // training goes on with these. Collective.
  virtual void adopt_values() = 0;
  // What is left of the last step on this rank, which some strategies do later, is done. Afterwards, until
  // the next begin_step(), all ranks may make forward passes together, each as many: what a unit lacks is
  // gathered in them. Collective.
  virtual void settle() = 0;

  // Whether module() has parts or copies of the model's parameters instead of the parameters themselves.
  virtual bool optimizes_parts() const = 0;
  // Whether the model itself computes with roundings of what module() has.
  virtual bool keeps_masters() const = 0;

  // Between the ranks' parts of a tensor of a parameter's shape (its value, or what an optimizer keeps for
  // it) and the whole: the tensor itself where nothing is sharded. assemble() is collective, and gives the
  // whole on every rank. A part may share the memory of the whole.
  virtual at::Tensor assemble(const std::string& parameter, const at::Tensor& part) = 0;
  virtual at::Tensor part_of(const std::string& parameter, const at::Tensor& whole) = 0;
  // A parameter's value as the optimizer has it, whole on every rank. After settle(); collective.
  virtual at::Tensor whole_parameter(const std::string& parameter) = 0;
  // Where in the whole parameter, flat, this rank's part begins; and the sizes of the whole.
  virtual std::int64_t part_offset(const std::string& parameter) const = 0;
  virtual std::vector<std::int64_t> whole_sizes(const std::string& parameter) = 0;
  // Gives a parameter the value `whole`, the same on all ranks. Between settle() and begin_step().
  virtual void set_parameter(const std::string& parameter, const at::Tensor& whole) = 0;
  virtual std::vector<ModelTensor> buffers() = 0;
};

// Of a model that every rank has as a whole.
class UndividedModel final : public ModelParts {
 public:
  // `module` outlives the object.
  explicit UndividedModel(torch::nn::Module& module) : module_(module) {}

  void make_whole() override {}
  void adopt_values() override {}
  void settle() override {}
  bool optimizes_parts() const override { return false; }
  bool keeps_masters() const override { return false; }
  at::Tensor assemble(const std::string& parameter, const at::Tensor& part) override;
  at::Tensor part_of(const std::string& parameter, const at::Tensor& whole) override;
  at::Tensor whole_parameter(const std::string& parameter) override;
  std::int64_t part_offset(const std::string&) const override { return 0; }
  std::vector<std::int64_t> whole_sizes(const std::string& parameter) override;
  void set_parameter(const std::string& parameter, const at::Tensor& whole) override;
  std::vector<ModelTensor> buffers() override;

 private:
  torch::nn::Module& module_;
};

}  // namespace rondo
