#include "rondo/strategy/prepared_model.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/nn/gradient_norm.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/optimizer_fields.h"
#include "rondo/strategy/mean_loss.h"

namespace rondo {
namespace {

// True while it lives.
class Raised {
 public:
  explicit Raised(bool& flag) : flag_(flag) { flag_ = true; }
  ~Raised() { flag_ = false; }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;

 private:
  bool& flag_;
};

}  // namespace

double PreparedModel::clip_gradients(double max_norm) {
  return rondo::clip_gradients(distinct_parameters(module()), max_norm);
}

LocalBatch PreparedModel::begin_pass(const LocalBatch& batch, const torch::nn::Module* model) {
  frozen_.reset();
  samples_ = batch.samples;
  LocalBatch own = batch;
  if (evaluates_closure_) own.gradients_are_read = true;
  if (batch.discard_gradients) own.synchronise = false;
  if (batch.discard_gradients && model != nullptr) frozen_.emplace(*model);
  return own;
}

at::Tensor PreparedModel::step(torch::optim::Optimizer& optimizer,
                               const std::function<at::Tensor()>& closure) {
  const auto evaluate = [&] {
    const at::AutoGradMode recording(true);
    at::Tensor loss;
    {
      const Raised raised(evaluates_closure_);
      loss = closure().detach();
    }
    const Group& ranks = parts().group();
    if (!ranks.member() || ranks.size() == 1) return loss;
    return mean_over_ranks(loss, static_cast<double>(samples_), ranks);
  };
  // Optimizers of these kinds evaluate once, before all else, and treat every element alone.
  if (with_optimizer_kind(optimizer, [](auto) {})) {
    const at::Tensor loss = evaluate();
    step(optimizer);
    return loss;
  }
  if (!optimizes_whole_model()) {
    throw UsageError(
        "step(optimizer, closure): this optimizer looks at the whole model, and under this strategy a rank "
        "optimises a part of it or for itself. SGD, Adam, AdamW, Adagrad, RMSprop and classes derived from "
        "them, Lion, LAMB and LARS can be used; for LBFGS and others take strategy ddp");
  }
  return optimizer.step(evaluate);
}

StepTotals PreparedModel::totals() {
  const Group& group = totals_group_.member() ? totals_group_ : parts().group();
  if (!group.member() || group.size() == 1) return totals_;
  at::Tensor sums = at::tensor({totals_.loss, static_cast<double>(totals_.predictions),
                                static_cast<double>(totals_.samples), totals_.stop ? 1.0 : 0.0},
                               at::kDouble)
                        .to(group.traits().control_device());
  all_reduce(sums, group);
  sums = sums.cpu();
  const double* const values = sums.const_data_ptr<double>();
  return {.loss = values[0],
          .predictions = static_cast<std::int64_t>(values[1]),
          .samples = static_cast<std::int64_t>(values[2]),
          .stop = values[3] > 0};
}

}  // namespace rondo
