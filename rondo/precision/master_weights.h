#pragma once

#include <torch/nn/module.h>

#include <map>
#include <memory>
#include <vector>

namespace rondo {

// float32 copies of a float16 or bfloat16 model's parameters. The optimizer, any of torch::optim or a user's
// own, is made of the copies and knows nothing of the model: small updates add up that would vanish in 8 or
// 11 bits of mantissa.
//
//   MasterWeights masters(*model);
//   torch::optim::Adam optimizer(masters.module().parameters(), 1e-3);
//   loss.backward();
//   masters.take_gradients();
//   optimizer.step();                  // or a GradScaler's unscale_() and step()
//   masters.write_back();
//
// One thread uses an object.
class MasterWeights {
 public:
  // Copies the parameters as they are now. The model's own tensors must stay: its structure, its parameters
  // (their values may change) and their requires_grad.
  explicit MasterWeights(torch::nn::Module& model);

  // A module of the model's structure and names, for optimizers and checkpoints: parameters of float16 and
  // bfloat16 are the copies, all others and the buffers the model's own tensors. A parameter shared by two
  // modules has one copy.
  torch::nn::Module& module() { return *module_; }
  // The copy of one of the model's parameters; the tensor itself where it has none.
  at::Tensor of(const at::Tensor& parameter) const;

  // The model's gradients move to the copies, in float32, replacing what is there; a parameter without a
  // gradient leaves its copy without one. Scaled gradients stay scaled.
  void take_gradients();
  // The copies, rounded, become the model's parameters: after the optimizer's step.
  void write_back();

 private:
  struct Pair {
    at::Tensor parameter;  // the model's
    at::Tensor master;
  };
  std::map<const c10::TensorImpl*, at::Tensor> masters_;  // by the model's parameter
  std::shared_ptr<torch::nn::Module> module_;
  std::vector<Pair> pairs_;
};

}  // namespace rondo
