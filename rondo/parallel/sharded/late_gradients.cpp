#include "rondo/parallel/sharded/late_gradients.h"

#include <torch/types.h>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

std::vector<at::Tensor> trained(const std::vector<ModelUnit>& units) {
  std::vector<at::Tensor> tensors;
  for (const ModelUnit& unit : units) {
    for (const ModelTensor& parameter : unit.parameters) {
      if (parameter.tensor.requires_grad()) tensors.push_back(parameter.tensor);
    }
  }
  return tensors;
}

}  // namespace

LateGradients::LateGradients(const std::vector<ModelUnit>& units, std::function<bool(std::size_t unit)> sent)
    : sent_(std::move(sent)), hooks_(trained(units), *this) {
  for (std::size_t unit = 0; unit < units.size(); ++unit) {
    for (const ModelTensor& parameter : units[unit].parameters) {
      places_[parameter.tensor.unsafeGetTensorImpl()] = {unit, units[unit].name, parameter.name};
    }
  }
}

void LateGradients::add(at::Tensor& parameter) {
  const Place& place = places_.at(parameter.unsafeGetTensorImpl());
  if (!sent_(place.unit)) return;
  throw UsageError(str("the gradient of '", place.name, "' came after the backward pass of its unit '",
                       place.unit_name,
                       "', whose gradients were on their way by then: a module outside the unit uses this "
                       "parameter, or backward() ran twice in one pass. Use it inside the unit only, or "
                       "make one unit of all modules that use it"));
}

}  // namespace rondo
