#pragma once

#include "rondo/strategy/prepared_model.h"

namespace rondo {

// torch::nn::utils::clip_grad_norm_ for a prepared model, whatever its strategy: scales all gradients down to
// the L2 norm `max_norm` over the parameters of the full model, wherever their shards are, and returns the
// norm before. torch's function, given the parameters of module(), would take the norm of this rank's shards
// alone.
//
// Call it between backward() of a pass that synchronises and step(). Collective; one thread. Throws
// UsageError, under the strategies that divide gradients, where no gradients are combined.
inline double clip_grad_norm_(PreparedModel& model, double max_norm) {
  return model.clip_gradients(max_norm);
}

}  // namespace rondo
