#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rondo/parallel/mesh/mesh_strategy.h"
#include "rondo/parallel/pipeline/pipeline_options.h"
#include "rondo/parallel/tensor/tensor_options.h"

namespace rondo {

// Strategy "pipeline": each replica of the model is cut into stages along the dimension "pipeline".
class PipelineStrategy final : public MeshStrategy {
 public:
  // With `division` the mesh's dimensions "tensor" and "context" divide every stage.
  PipelineStrategy(Context context, std::unique_ptr<Strategy> replicas, PipelineOptions options,
                   std::optional<TensorOptions> division)
      : MeshStrategy("pipeline", std::move(context), std::move(replicas)),
        options_(std::move(options)),
        division_(std::move(division)) {}

  using Strategy::prepare;
  std::unique_ptr<Training> prepare(const Recipe& recipe) override;

 private:
  PipelineOptions options_;
  std::optional<TensorOptions> division_;
};

// Of a mesh with the dimension "pipeline"; `replicas` trains what ranks along the other dimensions share. See
// PipelineStrategy. Throws UsageError for options that cannot be.
std::unique_ptr<Strategy> make_pipeline(const Context& context, std::unique_ptr<Strategy> replicas,
                                        const PipelineOptions& options,
                                        const std::optional<TensorOptions>& division = {});

}  // namespace rondo
