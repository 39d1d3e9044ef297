#pragma once

#include <memory>
#include <string>

#include "rondo/parallel/mesh/mesh_strategy.h"
#include "rondo/parallel/tensor/tensor_options.h"

namespace rondo {

// Strategies "tensor" and "context": the ranks of a group compute every sample together, each with its part
// of the layers, and along the dimension "context" each with its part of the sequence.
class TensorStrategy final : public MeshStrategy {
 public:
  // `context` has a mesh of "tensor" or "context", this replica's ranks, and others. `replicas` trains what
  // ranks have of the same parts, along all dimensions but "tensor": a strategy with one whole loop a
  // process, such as ddp or zero1.
  TensorStrategy(const Context& context, std::unique_ptr<Strategy> replicas, const TensorOptions& options);

  std::unique_ptr<Training> prepare(const Recipe& recipe) override;
  // Divides the module. Throws UsageError as divide_model() does.
  std::unique_ptr<PreparedModel> prepare(std::shared_ptr<torch::nn::Module> module) override;

 private:
  TensorOptions options_;
};

}  // namespace rondo
