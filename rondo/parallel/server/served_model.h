#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "rondo/parallel/gradients/reducer.h"
#include "rondo/server/cluster.h"
#include "rondo/server/optimizer.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// What a server is told of an optimizer's parameter group. Throws UsageError for an optimizer that servers
// have not, naming it: they have SGD, Adam, AdamW (without amsgrad) and Adagrad.
server::OptimizerSpec served_optimizer(const torch::optim::Optimizer& optimizer, std::size_t group);

// What the optimizer keeps for a parameter, as the slots of a server: float32 tensors of the parameter's
// shape.
struct ServedState {
  at::Tensor slots[server::kMostSlots];
  std::uint64_t updates = 0;
};
// Sets it, as if the optimizer had made that many updates itself.
void set_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, const ServedState& state);
// Empty slots and 0 updates where it has made none.
ServedState state_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

// A worker's copy of a model whose variables are on parameter servers. The step is PreparedModel's:
// begin_step() pulls at the first pass of a window, step() pushes instead of stepping the optimizer, of which
// only the options are used. Before a checkpoint the servers' state is put into it.
//
// Where LocalBatch names the optimizer and nobody looks at gradients first, each is pushed in the backward
// pass, when it is complete.
class ServedModel final : public PreparedModel, private GradientListener {
 public:
  ServedModel(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<server::Cluster> cluster,
              bool is_chief);
  // Says goodbye to the servers, unless an exception is under way.
  ~ServedModel() override;

  // The variables of a module: every parameter. Throws UsageError naming one that is not float32.
  static std::vector<server::VariableSpec> variables_of(const torch::nn::Module& module);

  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return *parts_; }
  CommunicationTimes communication_times() const override { return {exposed_, exposed_}; }
  // Before step(): what its gradients count in the mean of a synchronous step, where that is not this
  // worker's own samples.
  void set_weight(double samples) { samples_ = samples; }

 private:
  class Parts;

  void start_pass(const LocalBatch& batch) override;
  void apply_step(torch::optim::Optimizer& optimizer) override;
  void open();
  void pull();
  void end_step(double weight);
  // From here on pushes and checkpoints are of this optimizer.
  void use(torch::optim::Optimizer& optimizer);
  void push(std::size_t variable, const at::Tensor& parameter);
  void arrived(std::size_t number) override;  // of trained_
  // Between the servers and the optimizer that step() was given.
  void load_optimizer();
  void store_optimizer();
  void store_values();
  void pull_whole();

  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<server::Cluster> cluster_;
  bool is_chief_;
  std::vector<at::Tensor> parameters_;  // by variable
  std::vector<std::size_t> trained_;    // variables that get gradients
  std::map<const at::TensorImpl*, std::size_t> variable_of_;
  std::vector<std::optional<std::size_t>> group_of_;  // by variable: of optimizer_
  std::vector<bool> pushed_;                          // by variable: in this step
  bool pushes_early_ = false;                         // in this pass
  std::unique_ptr<ModelParts> parts_;
  torch::optim::Optimizer* optimizer_ = nullptr;  // the last that this object was told of
  bool is_open_ = false;
  bool in_window_ = false;           // more passes of the step are to come
  bool step_is_open_ = false;        // the servers know of its beginning, not of its end
  bool optimizer_is_newer_ = false;  // it was restored, and the servers have not been told
  std::uint64_t step_ = 0;
  double samples_ = 0;
  Duration exposed_{};
  std::unique_ptr<GradientHooks> hooks_;  // last: they call this object
};

}  // namespace rondo
