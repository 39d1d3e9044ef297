#include "rondo/strategy/prepared_model.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/base/error.h"
#include "rondo/nn/autograd_graph.h"
#include "rondo/nn/gradient_norm.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/nn/optimizers/optimizer_fields.h"
#include "rondo/strategy/mean_loss.h"
#include "rondo/strategy/model_parts.h"

namespace rondo {

std::vector<Shard> UndividedModel::shards() {
  std::vector<Shard> shards;
  for (const ModelTensor& parameter : tensors_of(module_).parameters)
    shards.push_back(full_shard(parameter.name, parameter.tensor, std::max(0, group().rank())));
  return shards;
}

void UndividedModel::give_back_model() {
  for (ModelTensor& parameter : tensors_of(module_).parameters)
    parameter.tensor.set_data(at::zeros_like(parameter.tensor));
}

std::vector<ModelTensor> UndividedModel::buffers() { return tensors_of(module_).buffers; }

namespace {

// A scope in which a flag is true.
class Raised {
 public:
  explicit Raised(bool& flag) : flag_(flag) { flag_ = true; }
  ~Raised() { flag_ = false; }
  Raised(const Raised&) = delete;
  Raised& operator=(const Raised&) = delete;

 private:
  bool& flag_;
};

constexpr const char* kNoStep =
    "forward() was called after backward() without step(): call step(optimizer) of the prepared model after "
    "backward(), not optimizer.step(). To add up gradients of several passes, put forward() and backward() "
    "of "
    "all but the last inside no_sync(); to leave a step out, call finish_backward()";

}  // namespace

void PreparedModel::begin_pass(const LocalBatch& given) {
  frozen_.reset();
  pass_ = Pass::none;
  is_whole_ = false;
  had_backward_->store(false);
  batch_ = given;
  if (evaluates_closure_) batch_.gradients_are_read = true;
  if (batch_.discard_gradients) batch_.synchronise = false;
  start_pass(batch_);
  if (batch_.discard_gradients) frozen_.emplace(original_ != nullptr ? *original_ : module());
}

void PreparedModel::begin_step(const LocalBatch& batch) {
  begin_pass(batch);
  pass_ = Pass::begin_step;
}

void PreparedModel::before_forward() {
  if (!at::GradMode::is_enabled()) {
    if (pass_ == Pass::none && !is_whole_) parts().flush();
    return;
  }
  const bool synchronises = local_depth_ == 0;
  if (pass_ == Pass::begin_step && !batch_.discard_gradients) return;
  if (pass_ != Pass::none && !had_backward_->load() &&
      (batch_.discard_gradients || batch_.synchronise == synchronises))
    return;
  if (pass_ == Pass::forward && batch_.synchronise && had_backward_->load()) throw UsageError(kNoStep);
  if (had_backward_->load()) finish_open_pass();
  begin_pass({.samples = local_samples_.value_or(1), .synchronise = synchronises});
  pass_ = Pass::forward;
}

void PreparedModel::after_forward(const std::vector<at::Tensor*>& outputs) {
  for (at::Tensor* const output : outputs) {
    if (!output->defined()) continue;
    *output = cast_output(*output);
    if (!at::GradMode::is_enabled() || !output->requires_grad()) continue;
    // autograd::grad() computes gradients of chosen tensors and does not complete any parameter's `.grad`.
    output->register_hook([had_backward = had_backward_](const at::Tensor&) {
      if (!is_partial_backward()) had_backward->store(true);
    });
  }
}

void PreparedModel::finish_backward() {
  pass_ = Pass::none;
  finish_pass();
  frozen_.reset();
}

void PreparedModel::finish_open_pass() {
  if (pass_ != Pass::none && !batch_.discard_gradients) finish_backward();
}

double PreparedModel::clip_gradients(double max_norm) {
  finish_open_pass();
  return clip_combined(max_norm);
}

double PreparedModel::clip_combined(double max_norm) {
  return rondo::clip_gradients(distinct_parameters(module()), max_norm);
}

void PreparedModel::step(torch::optim::Optimizer& optimizer) {
  finish_open_pass();
  apply_step(optimizer);
  local_samples_.reset();
}

at::Tensor PreparedModel::cast_input(const at::Tensor& input) const {
  return casts_.input && input.is_floating_point() ? input.to(*casts_.input) : input;
}

at::Tensor PreparedModel::cast_output(const at::Tensor& output) const {
  return casts_.output && output.is_floating_point() ? output.to(*casts_.output) : output;
}

at::Tensor PreparedModel::step(torch::optim::Optimizer& optimizer,
                               const std::function<at::Tensor()>& closure) {
  const auto evaluate = [&] {
    const at::AutoGradMode recording(true);
    at::Tensor loss;
    {
      const Raised raised(evaluates_closure_);
      loss = closure().detach();
      finish_open_pass();
    }
    const Group& ranks = parts().group();
    if (!ranks.member() || ranks.size() == 1) return loss;
    return mean_over_ranks(loss, static_cast<double>(batch_.samples), ranks);
  };
  // Optimizers of these kinds evaluate the closure once, before the update, and update each element
  // independently.
  if (with_optimizer_kind(optimizer, [](auto) {})) {
    const at::Tensor loss = evaluate();
    step(optimizer);
    return loss;
  }
  if (!parts().traits().optimizes_whole_model) {
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
