#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/backward_trace.h"
#include "rondo/parallel/ddp/options.h"
#include "rondo/parallel/ddp/sparse_exchange.h"
#include "rondo/parallel/gradients/drift_check.h"
#include "rondo/parallel/gradients/reducer.h"
#include "rondo/parallel/gradients/transfer.h"
#include "rondo/parallel/hooks/comm_hook.h"
#include "rondo/parallel/schedule/communication_queue.h"

namespace rondo {

// The reducer of data parallelism. It tracks which gradients a backward pass produces, and handles those that
// are missing at its end. Each bucket is reduced by a Transfer. Sparse gradients are exchanged at the end of
// backward. Errors of rondo's engines pass through unchanged; others become Error naming rank, group and
// bucket.
//
// Autograd's threads (one for the CPU, one for each other device) call the hooks during a backward pass. The
// training thread calls all other functions between backward passes.
class GradientReducer final : private Reducer, public std::enable_shared_from_this<GradientReducer> {
 public:
  // `dense` and `sparse` are the parameters that require gradients, the same on all ranks: with strided
  // gradients, and with sparse ones (rows). `frozen` are those that do not; a backward pass fails if one of
  // them later does. `announcement` provides the averaging weights and is cleared by every synchronised pass.
  GradientReducer(std::vector<ModelTensor> dense, std::vector<ModelTensor> sparse,
                  std::vector<ModelTensor> frozen, Group group, const DdpOptions& options,
                  std::shared_ptr<StepAnnouncement> announcement);
  ~GradientReducer();

  // Takes part in a backward pass of the other ranks without one on this rank. Contributes the content of
  // `.grad`, or zeros if undefined.
  void synchronize_without_backward();

  // Makes `hook` reduce the gradients. Collective; call it once, before the first backward pass.
  void set_comm_hook(CommHook hook);

  // See DistributedDataParallel::communication_state().
  CommState communication_state() const;
  void load_communication_state(const CommState& state);
  std::string communication_incompatibility(const CommState& state) const;

  // Changes the nesting depth of no_sync(). Gradients stay local while the depth is above 0.
  void change_no_sync_depth(int by);
  bool synchronises() const;

  // Sets, for with_join, whether the average is over the active ranks only.
  void set_divide_by_active(bool value) { divide_by_active_ = value; }

  const BackwardTrace& last_backward() const { return trace_; }

  // Number of passes that reduced gradients, and this rank's weight in the last of them.
  long long synchronised_passes() const { return synchronised_passes_; }
  const GradientWeight& last_weight() { return weight(); }

 private:
  class PassEnd;

  void arrived(std::size_t parameter) override;
  // Handles a dense parameter that has no gradient in this pass.
  void take_missing(std::size_t parameter);
  // Lays out the buckets for gradients that arrive in this order, a permutation of the dense parameters that
  // is the same on all ranks. Not during a backward pass.
  void lay_out(std::span<const std::size_t> order);
  void send(std::size_t bucket) override;
  std::unique_ptr<Transfer> make_transfer(Bucket bucket) const;
  // Returns true if gradients are reduced in place, without buckets for large ones.
  bool reduces_in_place() const { return !hook_.run && on_cpu_ && group_.traits().registered_memory; }
  void begin_pass();
  void end_pass(bool had_backward);
  void abandon_pass() noexcept;
  void fail_pass() noexcept;
  void expect_reverse_order();
  void check_gradient(std::size_t index) const;
  void reject_unfrozen() const;
  void resolve_missing(bool had_backward, std::vector<bool>& untouched);
  void exchange_usage(bool had_backward, std::vector<bool>& untouched);
  void adopt_arrival_order();
  // Returns the weight of this rank's gradients in the current pass. The first call blocks until the other
  // ranks have announced theirs.
  const GradientWeight& weight();

  bool is_dense(std::size_t index) const { return index < dense_.size(); }

  const std::vector<ModelTensor> dense_;       // numbered as in the buckets
  const std::vector<ModelTensor> parameters_;  // all parameters: dense_, then the sparse ones
  const std::vector<ModelTensor> frozen_;
  const Group group_;
  const DdpOptions options_;
  const std::shared_ptr<StepAnnouncement> announcement_;
  const bool on_cpu_;  // whether all dense parameters are on the CPU
  const Transfer::WeightSource weight_source_ = [this]() -> const GradientWeight& { return weight(); };
  // Dtype and number of elements of each gradient.
  std::vector<std::pair<at::ScalarType, std::int64_t>> expected_;

  // Protects the members below: with several devices hooks run on several threads of autograd.
  mutable std::mutex mutex_;
  CommHook hook_;
  // Position of a dense parameter's gradient.
  struct Place {
    std::size_t bucket = 0;
    std::size_t member = 0;
  };
  std::vector<std::unique_ptr<Transfer>> transfers_;  // by bucket, in launch order
  std::vector<std::size_t> gradients_;                // number of gradients of each bucket
  std::vector<std::string> layers_;                   // layers of each bucket, for trace spans
  std::vector<Place> places_;                         // by dense parameter
  CommunicationQueue queue_;
  SparseExchange sparse_;
  int no_sync_depth_ = 0;
  bool divide_by_active_ = false;
  bool in_pass_ = false;
  std::vector<bool> ready_;  // whether the gradient of each parameter is ready in this pass
  std::vector<bool> used_;   // by parameter, since the last synchronised pass (passes under no_sync included)
  // indices of dense parameters in the order of their gradients in this pass
  std::vector<std::size_t> arrival_;
  std::vector<std::size_t> adopted_order_;  // arrival order that buckets follow; empty before it is adopted
  bool order_is_new_ = false;               // whether the next pass changes the layout to adopted_order_
  bool began_ = false;                      // whether any gradient has arrived, also under no_sync
  bool static_graph_known_ = false;
  std::vector<bool> unused_here_;      // static graph: parameters never waited for on this rank
  std::vector<bool> unused_anywhere_;  // static graph: parameters without a gradient on all ranks
  long long synchronised_passes_ = 0;
  const std::shared_ptr<DriftCheck> drift_;  // check whose samples are sent with the announcement
  BackwardTrace trace_;
  bool weight_is_known_ = false;  // whether the weight of this pass is known
};

}  // namespace rondo
