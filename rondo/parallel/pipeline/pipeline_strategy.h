#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/parallel/mesh/mesh_strategy.h"
#include "rondo/parallel/pipeline/pipeline_model.h"
#include "rondo/parallel/pipeline/pipeline_options.h"
#include "rondo/parallel/pipeline/stage.h"
#include "rondo/parallel/pipeline/stage_link.h"
#include "rondo/parallel/tensor/tensor_options.h"
#include "rondo/pipeline/schedule.h"
#include "rondo/pipeline/simulation.h"
#include "rondo/strategy/group_rates.h"
#include "rondo/strategy/strategy.h"

namespace rondo {

// Training of a model that is cut into stages. Each batch passes through them in micro-batches, in the order
// of a schedule. Batch normalisation sees one micro-batch at a time, and updates its running statistics once
// for each.
class PipelineTraining final : public Training {
 public:
  // `strategy` has the mesh and `replicas` trains the replicas of a stage; both must outlive the object. With
  // `division` the mesh's dimensions "tensor" and "context" divide every stage. Collective. Throws UsageError
  // for a model without layers or with fewer than stages, and in the cases of divide_model(). Also throws for
  // master weights of a model with batch normalisation above a strategy that divides parameters.
  PipelineTraining(Strategy& strategy, Strategy& replicas, const Recipe& recipe,
                   const PipelineOptions& options, const std::optional<TensorOptions>& division);

  void compile(OptimizerFactory optimizer, LossFunction loss) override;
  StepResult train_step(std::span<const Batch> window, const StepSettings& settings) override;
  // Returns the outputs of the last stage, on the ranks of all stages.
  Tensors forward(const Batch& batch) override;
  const Model& model() const override { return model_; }
  torch::optim::Optimizer& optimizer() override;
  TrainingPrecision& precision() override { return precision_; }
  PreparedModel& prepared() override { return *prepared_; }

  const pipeline::Schedule& schedule() const { return schedule_; }
  // Returns this rank's computations in the last step, in order, without waits for other stages. Times are
  // monotonic_ns() in seconds, a clock that ranks of a host share.
  const std::vector<pipeline::Slot>& computed() const { return computed_; }

 private:
  // State of a batch that passes through the stages.
  struct Pass {
    std::vector<Batch> micro_batches;
    std::vector<std::string> about;  // shapes of each micro-batch's inputs, as text
    std::int64_t predictions = 0;    // number of predictions in the window
    // Tensors by stage and micro-batch, until they are sent or used.
    std::map<std::pair<int, int>, Tensors> activations = {}, gradients = {};
    std::vector<Tensors> outputs = {};  // outputs of the last stage, without gradients
    double loss = 0;                    // sum over predictions, on the last stage
  };

  int stages() const { return schedule_.stages(); }
  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<std::size_t>(stage)]; }
  bool is_here(int stage) const { return rank_of(stage) == pipeline_.rank(); }

  void leave_master_weights_to(Strategy& replicas);
  void cut(const Context& context, Strategy& replicas, const PipelineOptions& options,
           const std::optional<TensorOptions>& division);
  void cast_ends(std::vector<ModelLayer>& layers) const;
  Pass begin(const Batch& batch) const;
  // Returns the tensors that a neighbouring stage has given to stage `number`, from this rank or from the
  // link.
  Tensors take(StageMessage message, int number, int micro_batch, Pass& pass);
  void act(const pipeline::Action& action, Pass& pass, const StepSettings& settings);
  void forward_stage(int number, int micro_batch, Pass& pass, const StepSettings& settings);
  void backward_stage(const pipeline::Action& action, Pass& pass);

  c10::Device device_;
  const Group pipeline_;
  TrainingPrecision precision_;
  pipeline::Schedule schedule_;
  pipeline::Schedule evaluation_;  // forward passes of schedule_
  Model model_;
  std::map<int, std::unique_ptr<Stage>> stages_;  // stages of this rank, by number
  PipelineModel* parts_of_stages_ = nullptr;      // prepared_ itself, or the model that it wraps
  std::unique_ptr<PreparedModel> prepared_;
  StageLink link_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  GroupRates rates_;
  LossFunction loss_;
  bool needs_norms_ = false;              // whether the optimizer uses norms that are summed over ranks
  std::vector<pipeline::Slot> computed_;  // in the current step
  std::vector<TraceSpan> waits_;          // in the current step
  std::int64_t waited_ns_ = 0;
};

// Strategy "pipeline": each replica of the model is cut into stages along the mesh's dimension "pipeline".
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

// Returns a PipelineStrategy for a mesh with the dimension "pipeline". `replicas` trains the parameters that
// ranks along the other dimensions share. Throws UsageError for invalid options.
std::unique_ptr<Strategy> make_pipeline(const Context& context, std::unique_ptr<Strategy> replicas,
                                        const PipelineOptions& options,
                                        const std::optional<TensorOptions>& division = {});

}  // namespace rondo
