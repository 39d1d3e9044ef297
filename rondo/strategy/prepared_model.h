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

// Description of a forward pass for a strategy.
struct LocalBatch {
  // Number of samples that the gradients in `.grad` are computed from after this backward pass: this rank's
  // batch, or the whole window with gradient accumulation. 0 if this rank has no data left and computes on
  // samples that do not count. The combined gradient is the mean over all samples of all ranks: sum(samples *
  // gradient) / sum(samples).
  std::int64_t samples = 1;
  // False for all micro-batches of an accumulation window except the last: gradients stay local (DDP's
  // no_sync).
  bool synchronise = true;
  // The parameters get no gradients in this pass, and `.grad` keeps the gradients of earlier passes.
  // Gradients still pass through the model to its inputs, as a GAN's discriminator needs in the generator's
  // step. Such a pass never synchronises.
  bool discard_gradients = false;
  // Gradients are read between the backward pass and the optimizer's step: by clipping, a gradient scaler or
  // a custom loop. False lets a strategy defer combining gradients, and the optimizer's update, from
  // finish_backward() to the next forward pass.
  bool gradients_are_read = true;
  // Optimizer that the next step() will be given; null if unknown. Its learning rates must be those of the
  // step when the backward pass begins.
  torch::optim::Optimizer* optimizer = nullptr;
};

// Communication time of the last synchronised step.
struct CommunicationTimes {
  Duration busy{};     // time to move and reduce data, overlapped with computation or not
  Duration exposed{};  // part of it in which computation was blocked
};

// State that communication on one rank keeps between steps, by name; differs between ranks.
using CommunicationState = std::map<std::string, at::Tensor>;

// Dtypes to which a mixed precision policy casts around a model's own forward; empty: no cast. They apply to
// the whole model; units cast their own inputs and outputs.
struct ModelCasts {
  std::optional<at::ScalarType> input = {};   // dtype of floating-point inputs
  std::optional<at::ScalarType> output = {};  // dtype of floating-point outputs
};

// A scope that keeps gradients on this rank; PreparedModel::no_sync() returns it.
class [[nodiscard]] LocalPasses {
 public:
  // `depth` must outlive the object.
  explicit LocalPasses(int& depth) : depth_(&depth) { ++*depth_; }
  ~LocalPasses() {
    if (depth_ != nullptr) --*depth_;
  }
  // The moved-from object does nothing.
  LocalPasses(LocalPasses&& other) noexcept : depth_(std::exchange(other.depth_, nullptr)) {}
  LocalPasses& operator=(LocalPasses&&) = delete;

 private:
  int* depth_;
};

// A module that a strategy has prepared for training. A training step is:
//   loss = loss_function(prepared.forward(model, input), target);
//   loss.backward();
//   prepared.clip_gradients(norm);  // optional
//   prepared.step(optimizer);       // constructed from prepared.module().parameters()
//
// forward() begins a pass if none is open; step() and clip_gradients() finish it. A loop that describes a
// pass in more detail (LocalBatch), or calls the model itself, makes these calls:
//   prepared.begin_step(batch); loss = ...; prepared.announce(totals); loss.backward();
//   prepared.finish_backward(); prepared.clip_gradients(norm); prepared.step(optimizer); prepared.totals();
// announce() and totals() are only needed for sums over the ranks. finish_backward() is only needed to read
// gradients before step(), as a gradient scaler does. SynchronousTraining is this loop. All ranks make the
// same calls; an object is used by one thread.
//
// A strategy implements the protected functions; without communication module() and parts() suffice.
class PreparedModel {
 public:
  PreparedModel() = default;
  virtual ~PreparedModel() = default;
  PreparedModel(const PreparedModel&) = delete;
  PreparedModel& operator=(const PreparedModel&) = delete;

  // Returns the module to construct an optimizer from: the user's own module, or one that has, under the same
  // names, the parameter shards that this rank optimises.
  virtual torch::nn::Module& module() = 0;

  // Calls `model`, the prepared module (a holder, a pointer or the module itself) or a function of it, with
  // `inputs`. Casts tensors among the inputs and outputs as cast_input() and cast_output() do.
  //
  // If gradients are recorded, it is a forward pass of the next step; several calls before one backward() are
  // one pass. In a torch::NoGradGuard outside a step it is an evaluation: all ranks make the same number of
  // calls, or call unshard() first and then make any number. Throws UsageError if backward() was called
  // outside no_sync() and step() was not.
  template <class Model, class... Inputs>
  auto forward(Model&& model, Inputs&&... inputs) {
    before_forward();
    const auto call = [&](auto&&... cast) {
      // Tries forward first: the call operator of torch::nn::Sequential returns nothing.
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
  // Keeps the gradients of forward() and backward() on this rank while the result lives; the first pass after
  // it combines the sum, as DistributedDataParallel::no_sync() does. Put both calls inside the scope.
  LocalPasses no_sync() { return LocalPasses(local_depth_); }
  // Sets the number of samples that this rank's gradients of the next step are computed from, for all its
  // calls of forward() (LocalBatch::samples); for an accumulation window, that of the whole window. If one
  // rank calls it for a step, all must. Valid until the next step() or call. By default all ranks have the
  // same weight.
  void set_local_samples(std::int64_t samples) { local_samples_ = samples; }

  // Begins a pass; call it before the forward pass of each micro-batch.
  void begin_step(const LocalBatch& batch);
  // Sets this rank's contribution to totals(), between forward and backward of a synchronising step. It is
  // sent together with gradient metadata. Call it on all ranks or none; does not block.
  virtual void announce(const StepTotals& mine) { totals_ = mine; }
  // Returns the sums over all ranks, after finish_backward() of a step with announce(). Collective. The
  // default is one small all-reduce over the group of combine_totals_over(), or of parts().
  virtual StepTotals totals();
  // Sets the ranks whose totals are summed, unless the model sums them itself. A Training passes
  // Strategy::replicas().
  void combine_totals_over(const Group& group) { totals_group_ = group; }
  // Blocks until gradients are combined over all replicas (unless the pass does not synchronise). Throws
  // CommunicationError naming the missing ranks.
  void finish_backward();
  // Scales all gradients of the model down to the L2 norm `max_norm` over all its parameters, on all ranks
  // that have shards, and returns the norm before clipping. Call it after backward() of a synchronising pass;
  // finishes the pass. Collective.
  double clip_gradients(double max_norm);
  // Runs the optimizer's step; some strategies defer part of it. `optimizer` was constructed from module().
  // Finishes the pass. Throws UsageError naming the missing call.
  void step(torch::optim::Optimizer& optimizer);
  // Runs optimizer.step(closure) for an optimizer that evaluates the loss itself, such as LBFGS. `closure`
  // runs the step from optimizer.zero_grad() to backward() and returns this rank's mean loss. The optimizer
  // gets the mean over the samples of all replicas. The caller gets the same mean: of the last evaluation for
  // LBFGS, of the only one otherwise. Collective. Throws UsageError for an optimizer that reads the whole
  // model if a rank optimises only parts of it.
  at::Tensor step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure);

  // Returns the map between module()'s parameters on the ranks and the whole model, for evaluation, saving
  // and loading.
  virtual ModelParts& parts() = 0;
  // Calls ModelParts::unshard(); collective.
  void unshard() {
    parts().unshard();
    is_whole_ = true;
  }

  // Returns the state besides weights and optimizer that a bit-identical resume needs: a codec's accumulated
  // error of this rank's gradients, and the order in which gradients are communicated. Copies it between
  // steps. Empty if there is no such state.
  virtual CommunicationState communication_state() const { return {}; }
  // Restores communication_state() of all ranks, in rank order; call it before the first step, on every rank
  // with the same argument. State of another codec or number of ranks is not used, and the accumulated error
  // is lost. In that case returns the reason, for a log; otherwise an empty text. Does not communicate.
  virtual std::string restore_communication(const std::vector<CommunicationState>& /*of_ranks*/) {
    return {};
  }
  // Casts an input of the model's own forward, or an output of it, according to the mixed precision policy.
  at::Tensor cast_input(const at::Tensor& input) const;
  at::Tensor cast_output(const at::Tensor& output) const;  // likewise
  const ModelCasts& casts() const { return casts_; }       // dtypes of these casts
  // Returns the division of a sample among ranks that compute it together.
  const SampleDivision& division() const { return division_; }
  virtual CommunicationTimes communication_times() const { return {}; }  // times of the last step
  // Returns the spans of the last step; empty if nothing was communicated. Called only for the few traced
  // steps.
  virtual std::vector<TraceSpan> communication_spans() const { return {}; }

 protected:
  // Begins a pass for begin_step(); `batch` has all dependent fields set. If it discards gradients, the base
  // class freezes the parameters of the user's module afterwards.
  virtual void start_pass(const LocalBatch& /*batch*/) {}
  // Ends the pass for finish_backward(): combines gradients if it synchronises.
  virtual void finish_pass() {}
  // Clips combined gradients, for clip_gradients().
  virtual double clip_combined(double max_norm);
  // Runs the optimizer's step with combined gradients, for step().
  virtual void apply_step(torch::optim::Optimizer& optimizer) { optimizer.step(); }

  // Sets the user's module if it is not module(). For constructors of strategies' models.
  void set_original(const torch::nn::Module& original) { original_ = &original; }
  void set_casts(const ModelCasts& casts) { casts_ = casts; }                      // casts of cast_input()
  void set_division(SampleDivision division) { division_ = std::move(division); }  // result of division()

 private:
  // Origin of the open pass.
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
  // Finishes an open pass that produces gradients.
  void finish_open_pass();

  const torch::nn::Module* original_ = nullptr;  // null: module()
  ModelCasts casts_;
  SampleDivision division_;
  StepTotals totals_;   // totals of this rank
  Group totals_group_;  // empty until combine_totals_over()
  std::optional<FrozenParameters> frozen_;
  std::optional<std::int64_t> local_samples_;  // value of set_local_samples()
  Pass pass_ = Pass::none;
  LocalBatch batch_;     // batch of the last pass
  int local_depth_ = 0;  // nesting depth of no_sync()
  // Set by a hook on the outputs of forward(), on an autograd thread, before backward() returns.
  std::shared_ptr<std::atomic<bool>> had_backward_ = std::make_shared<std::atomic<bool>>(false);
  bool is_whole_ = false;           // whether unshard() was called after the last pass
  bool evaluates_closure_ = false;  // whether step() is running a closure
};

}  // namespace rondo
