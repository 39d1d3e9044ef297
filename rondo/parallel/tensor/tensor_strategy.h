#pragma once

#include <memory>
#include <string>

#include "rondo/parallel/mesh/mesh_strategy.h"
#include "rondo/parallel/tensor/tensor_options.h"

namespace rondo {

// Strategies "tensor" and "context": the ranks of a group compute every sample together. Each rank has a part
// of the layers, and along the dimension "context" a part of the sequence.
class TensorStrategy final : public MeshStrategy {
 public:
  // `context` has a mesh with "tensor" or "context". `replicas` trains parameters along all dimensions but
  // "tensor", among ranks with the same parts. It must be a strategy with one complete loop per process, such
  // as ddp or zero1.
  TensorStrategy(const Context& context, std::unique_ptr<Strategy> replicas, const TensorOptions& options);

  std::unique_ptr<Training> prepare(const Recipe& recipe) override;
  // Divides the module. Throws UsageError like divide_model().
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;

 private:
  TensorOptions options_;
};

}  // namespace rondo
