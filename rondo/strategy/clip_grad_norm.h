#pragma once

#include "rondo/strategy/prepared_model.h"

namespace rondo {

// Clips the gradients of a prepared model under any strategy, as torch::nn::utils::clip_grad_norm_ does.
// Scales all gradients down to the L2 norm `max_norm` over the parameters of the full model, on all ranks
// that have shards, and returns the norm before clipping. torch's function, called with the parameters of
// module(), would use the norm of this rank's shards only.
//
// Call it between backward() of a synchronising pass and step(). Collective; one thread. Throws UsageError
// under sharding strategies if no combined gradients exist.
inline double clip_grad_norm_(PreparedModel& model, double max_norm) {
  return model.clip_gradients(max_norm);
}

}  // namespace rondo
