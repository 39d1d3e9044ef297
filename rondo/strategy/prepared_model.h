#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/data/dataset.h"
#include "rondo/format/trace_span.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/unit.h"
#include "rondo/strategy/model_parts.h"
#include "rondo/strategy/sample_division.h"
#include "rondo/strategy/step_totals.h"

namespace rondo {

// What a strategy is told before a forward pass.
struct LocalBatch {
  // Samples behind the gradients that will lie in `.grad` after this backward pass: this rank's batch, or
  // with gradient accumulation the whole window. 0 when this rank has run out of data and computes on
  // samples that do not count. The combined gradient is the mean over all samples of all ranks, that is
  // sum(samples * gradient) / sum(samples).
  std::int64_t samples = 1;
  // False for all but the last micro-batch of an accumulation window: gradients stay local (DDP's no_sync).
  bool synchronise = true;
  // The parameters get no gradients in this pass, and what earlier passes left in `.grad` stays: for a model
  // that others learn through, such as a GAN's discriminator while the generator learns. Gradients still pass
  // through it to its inputs. Such a pass never synchronises.
  bool discard_gradients = false;
  // Someone looks at the gradients between the backward pass and the optimizer's step: clipping, a gradient
  // scaler, a user's own loop. False lets a strategy combine gradients later than finish_backward(), under
  // the next forward pass, and leave the optimizer's work until then.
  bool gradients_are_read = true;
  // What step() will be given, with the rates of this step from the backward pass on; null where nobody says.
  torch::optim::Optimizer* optimizer = nullptr;
};

// Where the last synchronised step spent its time on communication.
struct CommunicationTimes {
  Duration busy{};     // moving and reducing data, overlapped with computation or not
  Duration exposed{};  // computation stood still for it
};

// What communication on one rank remembers from step to step, by name; differs by rank.
using CommunicationState = std::map<std::string, at::Tensor>;

// Dtypes that a mixed precision policy casts to around a model's own forward; empty casts nothing. Units cast
// their own inputs and outputs; these are for the model as a whole.
struct ModelCasts {
  std::optional<at::ScalarType> input = {};   // of floating-point inputs
  std::optional<at::ScalarType> output = {};  // of floating-point outputs
};

// Keeps gradients on this rank while it lives; PreparedModel::no_sync() makes it.
class [[nodiscard]] LocalPasses {
 public:
  // `depth` outlives the object.
  explicit LocalPasses(int& depth) : depth_(&depth) { ++*depth_; }
  ~LocalPasses() {
    if (depth_ != nullptr) --*depth_;
  }
  // The moved-from object does nothing any more.
  LocalPasses(LocalPasses&& other) noexcept : depth_(std::exchange(other.depth_, nullptr)) {}
  LocalPasses& operator=(LocalPasses&&) = delete;

 private:
  int* depth_;
};

// A module made ready for training by a strategy. A training step is:
//   loss = loss_function(prepared.forward(model, input), target);
//   loss.backward();
//   prepared.clip_gradients(norm);  // where gradients are clipped
//   prepared.step(optimizer);       // made of prepared.module().parameters()
//
// forward() begins a pass where none is open, step() and clip_gradients() finish it. A loop that says more of
// a pass than forward() knows (LocalBatch), or calls the model itself, makes these calls:
//   prepared.begin_step(batch); loss = ...; prepared.announce(totals); loss.backward();
//   prepared.finish_backward(); prepared.clip_gradients(norm); prepared.step(optimizer); prepared.totals();
// announce() and totals() only where somebody wants sums over the ranks; finish_backward() only where
// somebody reads gradients before step(), as a gradient scaler does. SynchronousTraining is this loop.
// All ranks make the same calls; one thread uses an object.
//
// A strategy implements the protected functions; without communication all that does something is module()
// and parts().
class PreparedModel {
 public:
  PreparedModel() = default;
  virtual ~PreparedModel() = default;
  PreparedModel(const PreparedModel&) = delete;
  PreparedModel& operator=(const PreparedModel&) = delete;

  // Returns what to make an optimizer of: the user's own module, or one that has, under the same names, the
  // shards of its parameters that this rank optimises.
  virtual torch::nn::Module& module() = 0;

  // Calls `model`, the module that was prepared (a holder, a pointer or the module itself) or a function of
  // it, with `inputs`. Tensors among the inputs and in the outputs are cast as cast_input() and cast_output()
  // do.
  //
  // Where gradients are recorded this is a forward pass of the next step; several before one backward() are
  // one pass. In a torch::NoGradGuard outside of a step it is an evaluation: all ranks make as many such
  // calls, or call unshard() before and then make each their own. Throws UsageError when backward() was
  // called, outside of no_sync(), and step() was not.
  template <class Model, class... Inputs>
  auto forward(Model&& model, Inputs&&... inputs) {
    before_forward();
    const auto call = [&](auto&&... cast) {
      // First: the call operator of torch::nn::Sequential gives nothing back.
      if constexpr (requires { model->forward(std::forward<decltype(cast)>(cast)...); }) {
        return model->forward(std::forward<decltype(cast)>(cast)...);
      } else if constexpr (requires { model.forward(std::forward<decltype(cast)>(cast)...); }) {
        return model.forward(std::forward<decltype(cast)>(cast)...);
      } else {
        return model(std::forward<decltype(cast)>(cast)...);
      }
    };
    auto outputs = call(cast_if_tensor(std::forward<Inputs>(inputs))...);
    after_forward(unit_detail::tensors_in(outputs));
    return outputs;
  }
  // Keeps the gradients of forward() and backward() on this rank while the result lives; the first pass
  // after it combines the sum, as DistributedDataParallel::no_sync(). Put both calls inside it.
  LocalPasses no_sync() { return LocalPasses(local_depth_); }
  // Sets the samples behind this rank's gradients of the next step, for all of its calls of forward()
  // (LocalBatch::samples); in an accumulation window those of the whole window. If one rank calls it for a
  // step, all do. Until the next step() or call. Without it all ranks weigh the same.
  void set_local_samples(std::int64_t samples) { local_samples_ = samples; }

  // Begins a pass: before the forward pass of each micro-batch.
  void begin_step(const LocalBatch& batch);
  // Tells this rank's share of totals(), between the forward and the backward pass of a step that
  // synchronises. It travels with what ranks tell each other of their gradients. On all ranks or none; does
  // not wait.
  virtual void announce(const StepTotals& mine) { totals_ = mine; }
  // Returns the sums over all ranks, after finish_backward() of a step with announce(). Collective. By itself
  // one small all-reduce over the group of combine_totals_over(), or of parts().
  virtual StepTotals totals();
  // Sets the ranks whose totals are added up where the model does not do so itself. Strategy::replicas() in a
  // Training.
  void combine_totals_over(const Group& group) { totals_group_ = group; }
  // Blocks until gradients are combined over all replicas (unless the pass does not synchronise).
  // Throws CommunicationError naming the ranks that are missing.
  void finish_backward();
  // Scales all gradients of the model down to the L2 norm `max_norm` over all its parameters, wherever their
  // shards are, and returns the norm before. After backward() of a pass that synchronises; finishes it.
  // Collective.
  double clip_gradients(double max_norm);
  // Makes the optimizer's step, some strategies part of it later. `optimizer` was made of module(). Finishes
  // the pass. Throws UsageError naming the call that is missing.
  void step(torch::optim::Optimizer& optimizer);
  // As optimizer.step(closure), for an optimizer that evaluates the loss itself, such as LBFGS. `closure` is
  // the step up to backward(), from optimizer.zero_grad() on, and returns this rank's mean loss. The
  // optimizer is given the mean over the samples of all replicas, and so is the caller: of the last
  // evaluation for LBFGS, otherwise of the only one. Collective. Throws UsageError for an optimizer that
  // looks at the whole model at once where a rank optimises parts of it.
  at::Tensor step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure);

  // Returns the map between what module() has on the ranks and the whole model: for evaluation, saving and
  // loading.
  virtual ModelParts& parts() = 0;
  // As ModelParts has it; collective.
  void unshard() {
    parts().unshard();
    is_whole_ = true;
  }

  // Returns what a run needs besides weights and optimizer to go on bit for bit: what a codec has left out of
  // this rank's gradients so far, the order in which gradients travel. Copies, between steps. Empty where
  // there is nothing of the kind.
  virtual CommunicationState communication_state() const { return {}; }
  // Goes on from what communication_state() gave on all ranks, in rank order; before the first step, on every
  // rank with the same. Where it is of another codec or number of ranks it is not used, and what has been
  // left out is lost: the result says so and why, for a log; otherwise it is empty. Does not communicate.
  virtual std::string restore_communication(const std::vector<CommunicationState>& /*of_ranks*/) {
    return {};
  }
  // Casts an input of the model's own forward, or an output of it, as the mixed precision policy has it.
  at::Tensor cast_input(const at::Tensor& input) const;
  at::Tensor cast_output(const at::Tensor& output) const;  // likewise
  const ModelCasts& casts() const { return casts_; }       // the dtypes
  // Returns how ranks that compute a sample together divide it.
  const SampleDivision& division() const { return division_; }
  virtual CommunicationTimes communication_times() const { return {}; }  // of the last step
  // Empty when nothing was communicated. Only called for the few steps that are traced.
  virtual std::vector<TraceSpan> communication_spans() const { return {}; }

 protected:
  // Begins a pass, for begin_step(): `batch` with all that follows from its fields. Where it discards
  // gradients the base freezes the parameters of the user's module afterwards.
  virtual void start_pass(const LocalBatch& /*batch*/) {}
  // Ends the pass, for finish_backward(): combines gradients where it synchronises.
  virtual void finish_pass() {}
  // Clips combined gradients, for clip_gradients().
  virtual double clip_combined(double max_norm);
  // Makes the optimizer's step with combined gradients, for step().
  virtual void apply_step(torch::optim::Optimizer& optimizer) { optimizer.step(); }

  // For constructors of strategies' models. Sets the user's module where that is not module().
  void set_original(const torch::nn::Module& original) { original_ = &original; }
  void set_casts(const ModelCasts& casts) { casts_ = casts; }                      // of cast_input()
  void set_division(SampleDivision division) { division_ = std::move(division); }  // of division()

 private:
  // Who has begun the pass that is open.
  enum class Pass { none, forward, begin_step };

  template <class Input>
  decltype(auto) cast_if_tensor(Input&& input) const {
    if constexpr (std::is_same_v<std::remove_cvref_t<Input>, at::Tensor>) {
      return cast_input(input);
    } else {
      return std::forward<Input>(input);
    }
  }
  void before_forward();
  void after_forward(const std::vector<at::Tensor*>& outputs);
  void begin_pass(const LocalBatch& given);
  // Finishes a pass that gives gradients and is open.
  void finish_open_pass();

  const torch::nn::Module* original_ = nullptr;  // null: module()
  ModelCasts casts_;
  SampleDivision division_;
  StepTotals totals_;   // of this rank
  Group totals_group_;  // empty until combine_totals_over()
  std::optional<FrozenParameters> frozen_;
  std::optional<std::int64_t> local_samples_;  // set_local_samples()
  Pass pass_ = Pass::none;
  LocalBatch batch_;     // of the last pass
  int local_depth_ = 0;  // no_sync()
  // Set by a hook on the outputs of forward(), on a thread of autograd, before backward() returns.
  std::shared_ptr<std::atomic<bool>> had_backward_ = std::make_shared<std::atomic<bool>>(false);
  bool is_whole_ = false;           // unshard() was called, and no pass has begun since
  bool evaluates_closure_ = false;  // step() runs it
};

}  // namespace rondo
