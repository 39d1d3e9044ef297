#include "rondo/strategy/prepared_model.h"

#include "rondo/nn/gradient_values.h"
#include "rondo/nn/model_tensors.h"

namespace rondo {

double PreparedModel::clip_gradients(double max_norm) {
  return rondo::clip_gradients(distinct_parameters(module()), max_norm);
}

}  // namespace rondo
