#pragma once

#include <torch/nn/module.h>

#include <optional>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/base/bytes.h"
#include "rondo/base/time.h"
#include "rondo/parallel/ddp/comm_hook.h"
#include "rondo/strategy/step_totals.h"

namespace rondo {

// How worker processes combine gradients; TensorFlow's CommunicationOptions.
struct WorkerExchangeOptions {
  Bytes bytes_per_pack = MiB(25);        // gradients travel in packs of about this size
  std::optional<Duration> timeout = {};  // longest wait for a pack; empty: the group's
  bool ring = false;                     // reduce-scatter and all-gather, rather than what the engine chooses
  std::string codec = "none";            // how packs travel, a name for make_comm_hook; not with `ring`
};

// Gradients of one replica of each worker process, combined over all of them in flat packs, the last
// parameter's first, since backward completes it first.
class WorkerExchange {
 public:
  // The gradients of `model`'s trained parameters, the same on all ranks of `group`, which nobody else uses.
  WorkerExchange(Group group, const torch::nn::Module& model, const WorkerExchangeOptions& options);

  // Gradients become sum(samples_k * gradient_k) / sum(samples_k) over the ranks k, `samples` and `totals`
  // sums over them. Collective. Throws CommunicationError naming the ranks that are missing.
  void combine(double& samples, StepTotals& totals);

  // What the codec remembers from step to step, of this rank; and back, from what all ranks have saved, in
  // rank order. Returns why it was not taken, as PreparedModel::restore_communication() does.
  CommState communication_state() const;
  std::string restore_communication(const std::vector<CommState>& of_ranks);

 private:
  struct Pack {
    at::ScalarType dtype;
    c10::Device device;
    std::vector<std::size_t> parameters;  // in the order in which they lie in it
    at::Tensor flat = {};
  };

  void all_reduce_packs();
  void run_hook();

  Group group_;
  WorkerExchangeOptions options_;
  std::vector<at::Tensor> parameters_;
  std::vector<Pack> packs_;
  CommHook hook_;  // runs nothing without a codec
};

}  // namespace rondo
