#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/nn/model_tensors.h"

namespace torch::nn {
class Module;
}

namespace rondo {

class UnitState;

// Is told when a unit's forward and backward pass begin and end. The thread that runs the pass calls it:
// the caller of forward, and autograd's thread for the device in backward. An exception passes through to
// whoever runs the pass.
struct UnitObserver {
  virtual ~UnitObserver() = default;
  virtual void pre_forward(UnitState&) {}  // before the module's own forward
  // After the module's own forward; its outputs exist, what it saved for backward is saved.
  virtual void post_forward(UnitState&) {}
  // Gradients of all outputs of one call are there and nothing of that call's backward pass has run. Once for
  // each call of forward that was recorded for backward and whose outputs the loss depends on.
  virtual void pre_backward(UnitState&) {}
  // All parameters have the gradients that this call gives them, and the gradients of its inputs are there.
  // Follows each pre_backward; at the latest at the end of the whole backward pass (a unit of whose inputs
  // none needs a gradient, such as the first one).
  virtual void post_backward(UnitState&) {}
  // Around the second forward of a checkpointed unit (activation_checkpoint.h), which lies between its
  // pre_backward and post_backward. Units inside it see pre_forward and post_forward meanwhile.
  virtual void pre_recompute(UnitState&) {}
  virtual void post_recompute(UnitState&) {}  // after it
};

// What a unit's floating tensors become on their way in and out; empty: they stay.
struct UnitCasts {
  std::optional<at::ScalarType> inputs = {};   // when they enter the unit
  std::optional<at::ScalarType> outputs = {};  // when they leave it
};

// One part of a model whose parameters are gathered, reduced, scheduled and checkpointed together: what the
// observers of a rondo::Unit see of it. One thread at a time.
class UnitState {
 public:
  explicit UnitState(torch::nn::Module& module) : module_(module) {}  // `module` must outlive the object.
  UnitState(const UnitState&) = delete;
  UnitState& operator=(const UnitState&) = delete;

  torch::nn::Module& module() const { return module_; }  // that the unit is
  // Holds the module; null for one that no shared_ptr owns.
  std::shared_ptr<void> keep_alive() const;
  // Its path in the model ("transformer.h.0"); empty until units_of() has looked at the model.
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }  // units_of() does

  // Observers are called in the order in which they came, after a pass in the reverse order.
  void attach(std::shared_ptr<UnitObserver> observer);
  void detach(const std::shared_ptr<UnitObserver>& observer);  // from here on it is not told any more
  bool observed() const { return !observers_.empty(); }        // whether anybody is told

  // Keeps only its inputs after forward and computes again in backward (activation_checkpoint.h).
  bool checkpointed() const { return checkpointed_; }
  void set_checkpointed(bool checkpointed) { checkpointed_ = checkpointed; }  // of calls from now on

  // Of calls from now on, while the unit is observed.
  const UnitCasts& casts() const { return casts_; }
  void set_casts(const UnitCasts& casts) { casts_ = casts; }  // of calls from now on

  void notify_pre_forward();     // tells all observers
  void notify_post_forward();    // tells all observers, last first
  void notify_pre_backward();    // tells all observers
  void notify_post_backward();   // tells all observers, last first
  void notify_pre_recompute();   // tells all observers
  void notify_post_recompute();  // tells all observers, last first

 private:
  torch::nn::Module& module_;
  std::string name_;
  std::vector<std::shared_ptr<UnitObserver>> observers_;
  bool checkpointed_ = false;
  UnitCasts casts_;
};

// One call of a unit's forward: marks inputs and outputs so that the backward pass tells the observers when
// it enters and leaves the unit.
class UnitCall {
 public:
  // Calls pre_forward.
  explicit UnitCall(UnitState& state);

  // Gives each input a twin (same memory, same version counter) that the module is to compute with. Undefined
  // tensors and those that need no gradient stay as they are. Then casts, so that gradients come back in the
  // dtype that the caller has.
  void mark_inputs(const std::vector<at::Tensor*>& inputs);
  // Casts, calls post_forward, and replaces each output by a twin.
  void mark_outputs(const std::vector<at::Tensor*>& outputs);

 private:
  UnitState& state_;
  bool has_input_boundary_ = false;
};

// A unit and the parameters that are its own.
struct ModelUnit {
  // Path of its module in the model, "root" for what no unit holds.
  std::string name = {};
  UnitState* state = nullptr;                // null for the root
  std::vector<ModelTensor> parameters = {};  // its own

  // Of all its parameters.
  std::uint64_t parameter_bytes() const;
};

// What the part of a model outside all units is called.
inline constexpr const char* kRootUnit = "root";

// Divides the parameters of `model` among its units, and tells each unit its name. A parameter belongs to the
// innermost unit around it, one that several modules share to the innermost unit around all of them. The root
// comes first and is left out when it has no parameters; the others follow in the order of registration,
// which is that of forward in most models. Units without parameters of their own are left out.
std::vector<ModelUnit> partition_into_units(const torch::nn::Module& model);

// All units in `model`, outer before inner, in order of registration, those without parameters included.
// Tells each its name.
std::vector<UnitState*> units_of(const torch::nn::Module& model);

}  // namespace rondo
