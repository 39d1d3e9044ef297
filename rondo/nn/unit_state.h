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

// An observer of the beginning and end of a unit's forward and backward passes. Called on the thread that
// runs the pass: the caller of forward, and autograd's device thread in backward. Exceptions propagate to the
// code that runs the pass.
struct UnitObserver {
  virtual ~UnitObserver() = default;
  virtual void pre_forward(UnitState&) {}  // Called before the module's own forward
  // Called after the module's own forward, when its outputs exist and tensors for backward are saved.
  virtual void post_forward(UnitState&) {}
  // Called when gradients of all outputs of one call exist and nothing of that call's backward pass has run.
  // Once for each recorded call of forward whose outputs the loss depends on.
  virtual void pre_backward(UnitState&) {}
  // Called when all parameters have this call's gradients, and gradients of its inputs exist. Follows each
  // pre_backward. Called at the end of the whole backward pass for a unit whose inputs do not require a
  // gradient, such as the first one.
  virtual void post_backward(UnitState&) {}
  // Called before the second forward of a checkpointed unit (activation_checkpoint.h), between its
  // pre_backward and post_backward. Units inside it get pre_forward and post_forward meanwhile.
  virtual void pre_recompute(UnitState&) {}
  virtual void post_recompute(UnitState&) {}  // Called after the second forward
};

// Dtypes for a unit's floating-point inputs and outputs; empty: no cast.
struct UnitCasts {
  std::optional<at::ScalarType> inputs = {};   // dtype of inputs in the unit
  std::optional<at::ScalarType> outputs = {};  // dtype of outputs outside the unit
};

// The state of one unit (rondo::Unit) as observers see it: a part of a model whose parameters are gathered,
// reduced, scheduled and checkpointed together. Used by one thread at a time.
class UnitState {
 public:
  explicit UnitState(torch::nn::Module& module) : module_(module) {}  // `module` must outlive the object.
  UnitState(const UnitState&) = delete;
  UnitState& operator=(const UnitState&) = delete;

  torch::nn::Module& module() const { return module_; }  // the unit's module
  // Returns a reference that keeps the module alive; null if no shared_ptr owns it.
  std::shared_ptr<void> keep_alive() const;
  // Returns the unit's path in the model ("transformer.h.0"); empty before units_of() was called for the
  // model.
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }  // called by units_of()

  // Adds an observer. Observers are called in the order of attachment, after a pass in reverse order.
  void attach(std::shared_ptr<UnitObserver> observer);
  void detach(const std::shared_ptr<UnitObserver>& observer);  // stops notifications
  bool observed() const { return !observers_.empty(); }        // whether there is an observer

  // Returns whether the unit keeps only its inputs after forward and recomputes in backward
  // (activation_checkpoint.h).
  bool checkpointed() const { return checkpointed_; }
  void set_checkpointed(bool checkpointed) { checkpointed_ = checkpointed; }  // applies to later calls

  // Returns the casts of later calls, which apply while the unit is observed.
  const UnitCasts& casts() const { return casts_; }
  void set_casts(const UnitCasts& casts) { casts_ = casts; }  // applies to later calls

  void notify_pre_forward();     // notifies all observers
  void notify_post_forward();    // notifies all observers, last one first
  void notify_pre_backward();    // notifies all observers
  void notify_post_backward();   // notifies all observers, last one first
  void notify_pre_recompute();   // notifies all observers
  void notify_post_recompute();  // notifies all observers, last one first

 private:
  torch::nn::Module& module_;
  std::string name_;
  std::vector<std::shared_ptr<UnitObserver>> observers_;
  bool checkpointed_ = false;
  UnitCasts casts_;
};

// One call of a unit's forward. It marks inputs and outputs so that the backward pass notifies observers when
// it enters and leaves the unit.
class UnitCall {
 public:
  // Calls pre_forward.
  explicit UnitCall(UnitState& state);

  // Replaces each input by a twin (same memory, same version counter) for the module to compute with.
  // Undefined tensors and those that require no gradient stay as they are. Casts afterwards, so that
  // gradients arrive in the caller's dtype.
  void mark_inputs(const std::vector<at::Tensor*>& inputs);
  // Casts, calls post_forward, and replaces each output by a twin.
  void mark_outputs(const std::vector<at::Tensor*>& outputs);

 private:
  UnitState& state_;
  bool has_input_boundary_ = false;
};

// A unit and the parameters that belong to it.
struct ModelUnit {
  // Path of the unit's module in the model; "root" for parameters outside all units.
  std::string name = {};
  UnitState* state = nullptr;                // null for the root
  std::vector<ModelTensor> parameters = {};  // parameters of the unit itself, not of inner units

  // Returns the size of its parameters in bytes.
  std::uint64_t parameter_bytes() const;
};

// Name of the part of a model outside all units.
inline constexpr const char* kRootUnit = "root";

// Divides the parameters of `model` among its units, and sets the name of each unit. A parameter belongs to
// the innermost unit around it; a shared parameter belongs to the innermost unit around all its modules. The
// root comes first if it has parameters. The others follow in the order of registration, which is the forward
// order in most models. Units without parameters of their own are omitted.
std::vector<ModelUnit> partition_into_units(const torch::nn::Module& model);

// Returns all units in `model`, outer before inner, in order of registration, including those without
// parameters. Sets the name of each.
std::vector<UnitState*> units_of(const torch::nn::Module& model);

}  // namespace rondo
