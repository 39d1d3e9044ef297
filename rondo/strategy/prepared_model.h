#pragma once

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/data/dataset.h"
#include "rondo/format/trace_span.h"
#include "rondo/nn/loss.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/strategy/model_parts.h"
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

// A module made ready for training by a strategy. A training step is:
//   prepared.begin_step(batch); loss = forward(...); prepared.announce(totals); loss.backward();
//   prepared.finish_backward(); prepared.clip_gradients(norm); prepared.step(optimizer); prepared.totals();
// without announce() and totals() where nobody wants sums over the ranks. SynchronousTraining is this loop.
// All ranks make the same calls; one thread uses an object.
class PreparedModel {
 public:
  virtual ~PreparedModel() = default;

  // What to make an optimizer of: the user's own module, or one that has, under the same names, the shards of
  // its parameters that this rank optimises.
  virtual torch::nn::Module& module() = 0;
  virtual void begin_step(const LocalBatch& batch) = 0;  // before the forward pass of each micro-batch
  // Between the forward and the backward pass of a step that synchronises: what this rank adds to totals().
  // It travels with what ranks tell each other of their gradients. On all ranks or none; does not wait.
  virtual void announce(const StepTotals& mine) { totals_ = mine; }
  // After finish_backward() of a step with announce(): the sums over all ranks. Collective. By itself one
  // small all-reduce over the group of combine_totals_over(), or of parts().
  virtual StepTotals totals();
  // The ranks whose totals are added up where the model does not do so itself. Strategy::replicas() in a
  // Training.
  void combine_totals_over(const Group& group) { totals_group_ = group; }
  // Blocks until gradients are combined over all replicas (unless the step does not synchronise).
  // Throws CommunicationError naming the ranks that are missing.
  virtual void finish_backward() = 0;
  // Scales all gradients of the model down to the L2 norm `max_norm` over all its parameters, wherever their
  // shards are, and returns the norm before. After finish_backward() of a step that synchronises. Collective.
  virtual double clip_gradients(double max_norm);
  // The optimizer's step; some strategies do part of it later. `optimizer` was made of module().
  virtual void step(torch::optim::Optimizer& optimizer) { optimizer.step(); }
  // As optimizer.step(closure), for an optimizer that evaluates the loss itself, such as LBFGS. `closure` is
  // the step up to finish_backward(), from optimizer.zero_grad() on, and returns this rank's mean loss. The
  // optimizer is given the mean over the samples of all replicas, and so is the caller: of the last
  // evaluation for LBFGS, otherwise of the only one. Collective. Throws UsageError for an optimizer that
  // looks at the whole model at once where a rank optimises parts of it.
  at::Tensor step(torch::optim::Optimizer& optimizer, const std::function<at::Tensor()>& closure);
  // Between what module() has on the ranks and the whole model: for evaluation, saving and loading.
  virtual ModelParts& parts() = 0;
  void unshard() { parts().unshard(); }  // as ModelParts has it; collective
  // What a run needs besides weights and optimizer to go on bit for bit: what a codec has left out of this
  // rank's gradients so far, the order in which gradients travel. Copies, between steps. Empty where there is
  // nothing of the kind.
  virtual CommunicationState communication_state() const { return {}; }
  // Goes on from what communication_state() gave on all ranks, in rank order; before the first step, on every
  // rank with the same. Where it is of another codec or number of ranks it is not used, and what has been
  // left out is lost: the result says so and why, for a log; otherwise it is empty. Does not communicate.
  virtual std::string restore_communication(const std::vector<CommunicationState>& /*of_ranks*/) {
    return {};
  }
  // Around the model's own forward, under a mixed precision policy: what it is to be given, and what its
  // output becomes. Units cast their own inputs and outputs; these are for the model as a whole.
  virtual at::Tensor cast_input(const at::Tensor& input) const { return input; }
  virtual at::Tensor cast_output(const at::Tensor& output) const { return output; }  // likewise
  // What of a batch this rank's model is given, and compared with, where a replica's ranks divide the
  // sequence.
  virtual Batch own_part(const Batch& batch) const { return batch; }
  // Among so many ranks. Each counts by the predictions of the whole batch, and what it minimises is the
  // part of its predictions times their number, since gradients of one rank's loss pass through the others.
  virtual int ranks_of_sequence() const { return 1; }
  // What is minimised in place of `loss`, which is of the whole outputs, where the model gives this rank a
  // part of them.
  virtual LossFunction loss_of_parts(LossFunction loss) const { return loss; }
  // All of such outputs, for evaluation and prediction. Collective among the ranks that have a part.
  virtual std::vector<at::Tensor> whole_outputs(std::vector<at::Tensor> outputs) const { return outputs; }
  virtual CommunicationTimes communication_times() const = 0;  // of the last step
  // Empty when nothing was communicated. Only called for the few steps that are traced.
  virtual std::vector<TraceSpan> communication_spans() const { return {}; }

 protected:
  // For begin_step(), before anything else: ends what the pass before has frozen, freezes the parameters of
  // `model` for one that discards gradients (null: a prepared model inside this one does), and returns
  // `batch` with all that follows from that.
  LocalBatch begin_pass(const LocalBatch& batch, const torch::nn::Module* model);
  // For finish_backward().
  void end_pass() { frozen_.reset(); }
  // Whether an optimizer on this rank may look at the whole model and evaluate it as often as it likes.
  virtual bool optimizes_whole_model() { return false; }

 private:
  StepTotals totals_;   // of this rank
  Group totals_group_;  // empty until combine_totals_over()
  std::optional<FrozenParameters> frozen_;
  std::int64_t samples_ = 1;        // of the pass
  bool evaluates_closure_ = false;  // step() runs it
};

}  // namespace rondo
