#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "rondo/backend/engine/codec_state.h"
#include "rondo/parallel/gradients/reducer.h"
#include "rondo/server/cluster.h"
#include "rondo/server/optimizer.h"
#include "rondo/strategy/prepared_model.h"

namespace rondo {

// Returns the server's description of the options of an optimizer's parameter group. Throws UsageError naming
// an unsupported optimizer: servers have SGD, Adam, AdamW (without amsgrad) and Adagrad.
server::OptimizerSpec served_optimizer(const torch::optim::Optimizer& optimizer, std::size_t group);

// The optimizer's state for a parameter, as the slots of a server: float32 tensors of the parameter's shape.
struct ServedState {
  at::Tensor slots[server::kMostSlots];
  std::uint64_t updates = 0;
};
// Sets the state as if the optimizer had made that many updates itself.
void set_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter, const ServedState& state);
// Returns the state; empty slots and 0 updates if the optimizer has made none.
ServedState state_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

// A worker's copy of a model whose variables are on parameter servers. begin_step() pulls at the first pass
// of a window. step() pushes gradients instead of stepping the optimizer, which only provides the options.
// Before a checkpoint the servers' state is copied into the optimizer.
//
// If LocalBatch names the optimizer and its gradients are not read before the step, each gradient is pushed
// during the backward pass, when it is complete.
class ServedModel final : public PreparedModel, private GradientListener {
 public:
  ServedModel(std::shared_ptr<torch::nn::Module> module, std::shared_ptr<server::Cluster> cluster,
              bool is_chief);
  // Disconnects from the servers, unless an exception is propagating.
  ~ServedModel() override;

  // Returns the variables of a module: every parameter. Throws UsageError naming one that is not float32.
  static std::vector<server::VariableSpec> variables_of(const torch::nn::Module& module);

  torch::nn::Module& module() override { return *module_; }
  ModelParts& parts() override { return *parts_; }
  CommunicationTimes communication_times() const override { return {exposed_, exposed_}; }
  // Saves the chief's state only; the error feedback of other workers restarts.
  CommunicationState communication_state() const override;
  std::string restore_communication(const std::vector<CommunicationState>& of_ranks) override;
  // Sets the weight of the gradients in the mean of a synchronous step, if it differs from this worker's own
  // number of samples. Call it before step().
  void set_weight(double samples) { samples_ = samples; }

 private:
  class Parts;

  void start_pass(const LocalBatch& batch) override;
  void apply_step(torch::optim::Optimizer& optimizer) override;
  void open();
  void pull();
  void end_step(double weight);
  // Sets the optimizer that pushes and checkpoints use.
  void use(torch::optim::Optimizer& optimizer);
  void push(std::size_t variable, const at::Tensor& parameter);
  // Makes the error feedback of the variable.
  void reserve_feedback(std::size_t variable);
  // Returns the error feedback by name; the tensors are not copied.
  CommState feedback() const;
  // `number` is an index into trained_.
  void arrived(std::size_t number) override;
  // Copy state between the servers and the optimizer given to step().
  void load_optimizer();
  void store_optimizer();
  void store_values();
  void pull_whole();

  std::shared_ptr<torch::nn::Module> module_;
  std::shared_ptr<server::Cluster> cluster_;
  bool is_chief_;
  std::vector<at::Tensor> parameters_;  // by variable
  std::vector<std::size_t> trained_;    // indices of variables that get gradients
  std::map<const at::TensorImpl*, std::size_t> variable_of_;
  std::vector<std::optional<std::size_t>> group_of_;  // by variable: its parameter group in optimizer_
  std::vector<bool> pushed_;                          // by variable: whether it was pushed in this step
  std::vector<ErrorFeedback> feedback_;               // by variable: that of pushed gradients
  bool pushes_early_ = false;                         // whether this pass pushes gradients during backward
  std::unique_ptr<ModelParts> parts_;
  torch::optim::Optimizer* optimizer_ = nullptr;  // last optimizer passed to use()
  bool is_open_ = false;
  bool in_window_ = false;     // whether more passes of the step follow
  bool step_is_open_ = false;  // whether begin_step() was sent to the servers, and end_step() was not
  // Whether the optimizer was restored and the servers do not have its state yet.
  bool optimizer_is_newer_ = false;
  std::uint64_t step_ = 0;
  double samples_ = 0;
  Duration exposed_{};
  std::unique_ptr<GradientHooks> hooks_;  // last member, because they call this object
};

}  // namespace rondo
