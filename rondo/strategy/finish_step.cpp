#include "rondo/strategy/finish_step.h"

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <map>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/nn/optimizers/rule_optimizer.h"
#include "rondo/strategy/clip_shards.h"

namespace rondo {
namespace {

// Adapts `sum`, which takes parameters of `module`, to an optimizer that has their masters.
NormSum norm_sum_of_masters(NormSum sum, const torch::nn::Module& module, const MasterWeights& masters) {
  std::map<const c10::TensorImpl*, at::Tensor> parameters;  // parameters by master
  for (const at::Tensor& parameter : module.parameters())
    parameters.emplace(masters.of(parameter).unsafeGetTensorImpl(), parameter);
  return [sum = std::move(sum), parameters = std::move(parameters)](const std::vector<at::Tensor>& optimized,
                                                                    at::Tensor& squares) {
    std::vector<at::Tensor> of_model;
    for (const at::Tensor& master : optimized)
      of_model.push_back(parameters.at(master.unsafeGetTensorImpl()));
    sum(of_model, squares);
  };
}

}  // namespace

void finish_step(PreparedModel& model, TrainingPrecision& precision, torch::optim::Optimizer& optimizer,
                 const StepSettings& settings, StepResult& result) {
  result.loss_scale = precision.loss_scale();
  const bool finite = precision.finish_gradients(optimizer);
  if (settings.clip_norm > 0 && finite)
    result.gradient_norm = clip_optimized(model, precision.master_weights(), settings.clip_norm);
  result.skipped = !precision.step(optimizer, [&] { model.step(optimizer); });
}

bool add_up_norms(torch::optim::Optimizer& optimizer, PreparedModel& model, TrainingPrecision& precision,
                  const std::string& divided_by, const std::string& instead) {
  auto* const normed = dynamic_cast<WholeNormOptimizer*>(&optimizer);
  if (normed == nullptr) return false;
  NormSum sum = model.parts().norm_sum();
  if (!sum) {
    throw UsageError(str("LAMB and LARS look at norms of full parameters, which ", divided_by,
                         " spreads over ranks and does not add up; use ", instead));
  }
  if (MasterWeights* const masters = precision.master_weights())
    sum = norm_sum_of_masters(std::move(sum), model.module(), *masters);
  normed->set_norm_sum(std::move(sum));
  return true;
}

}  // namespace rondo
