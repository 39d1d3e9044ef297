#include "rondo/strategy/prepared_model.h"

#include <torch/nn/utils/clip_grad.h>
#include <torch/types.h>

#include "rondo/nn/model_tensors.h"

namespace rondo {

double PreparedModel::clip_gradients(double max_norm) {
  return torch::nn::utils::clip_grad_norm_(distinct_parameters(module()), max_norm);
}

}  // namespace rondo
