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

// The model's side of data parallelism: which gradients a backward pass has to have, and what becomes of
// those that it lacks at its end. They leave in buckets, each by a transfer, whose business is how they
// travel. Sparse gradients wait for the end of backward. Errors of rondo's engines pass through, others
// become Error naming rank, group and bucket.
//
// A backward pass calls it from the threads of autograd (one for the CPU, one for each other device);
// everything else is called by the training thread between backward passes.
class GradientReducer final : private Reducer, public std::enable_shared_from_this<GradientReducer> {
 public:
  // `dense` and `sparse` are the parameters that require gradients, the same on all ranks: those whose
  // gradients have every element, and those of which autograd gives rows. `frozen` are those that do not: an
  // error once they do. The announcement tells the averaging weights and is cleared by every synchronised
  // pass.
  GradientReducer(std::vector<ModelTensor> dense, std::vector<ModelTensor> sparse,
                  std::vector<ModelTensor> frozen, Group group, const DdpOptions& options,
                  std::shared_ptr<StepAnnouncement> announcement);
  ~GradientReducer();

  // Takes part in the others' backward pass without one of its own, with what `.grad` holds (zeros if
  // nothing).
  void synchronize_without_backward();

  // Collective. The hook decides from now on how gradients travel. Before the first backward pass only, and
  // once.
  void set_comm_hook(CommHook hook);

  // See DistributedDataParallel::communication_state().
  CommState communication_state() const;
  void load_communication_state(const CommState& state);
  std::string communication_incompatibility(const CommState& state) const;

  // While the depth is above zero gradients stay local.
  void change_no_sync_depth(int by);
  bool synchronises() const;

  // Inside with_join: whether ranks without data still count in the average.
  void set_divide_by_active(bool value) { divide_by_active_ = value; }

  const BackwardTrace& last_backward() const { return trace_; }

  // Passes that have combined gradients, and how much this rank's counted in the last of them.
  long long synchronised_passes() const { return synchronised_passes_; }
  const GradientWeight& last_weight() { return weight(); }

 private:
  class PassEnd;

  void arrived(std::size_t parameter) override;
  // There is no gradient of a dense parameter in this pass.
  void take_missing(std::size_t parameter);
  // Makes the buckets for gradients that come in this order, a permutation of the dense parameters and the
  // same on all ranks. Not during a backward pass.
  void lay_out(std::span<const std::size_t> order);
  void send(std::size_t bucket) override;
  std::unique_ptr<Transfer> make_transfer(Bucket bucket) const;
  // Whether gradients are reduced where autograd put them.
  bool reduces_in_place() const { return !hook_.run && on_cpu_ && group_.traits().registered_memory; }
  void begin_pass();
  void end_pass(bool had_backward);
  void abandon_pass() noexcept;
  void fail_pass() noexcept;
  void expect_reverse_order();
  void check_gradient(std::size_t index) const;
  void refuse_thawed() const;
  void settle_missing(bool had_backward, std::vector<bool>& untouched);
  void exchange_usage(bool had_backward, std::vector<bool>& untouched);
  void adopt_arrival_order();
  const GradientWeight& weight();  // of this pass; the first call waits for the other ranks' announcements

  bool is_dense(std::size_t index) const { return index < dense_.size(); }

  const std::vector<ModelTensor> dense_;       // numbered as in the buckets
  const std::vector<ModelTensor> parameters_;  // all: dense_, then the sparse ones
  const std::vector<ModelTensor> frozen_;
  const Group group_;
  const DdpOptions options_;
  const std::shared_ptr<StepAnnouncement> announcement_;
  const bool on_cpu_;  // all dense parameters
  const Transfer::WeightSource weight_source_ = [this]() -> const GradientWeight& { return weight(); };
  std::vector<std::pair<at::ScalarType, std::int64_t>> expected_;  // dtype and elements of each gradient

  // Protects everything below: with several devices hooks run on several threads of autograd.
  mutable std::mutex mutex_;
  CommHook hook_;
  // The place in which a dense parameter's gradient travels.
  struct Place {
    std::size_t bucket = 0;
    std::size_t member = 0;
  };
  std::vector<std::unique_ptr<Transfer>> transfers_;  // by bucket, in the order in which they go
  std::vector<std::size_t> gradients_;                // by bucket, their number
  std::vector<Place> places_;                         // by dense parameter
  CommunicationQueue queue_;
  std::vector<CommunicationQueue::Ticket> tickets_;  // of the buckets that were sent in this pass
  SparseExchange sparse_;
  int no_sync_depth_ = 0;
  bool divide_by_active_ = false;
  bool in_pass_ = false;
  std::vector<bool> ready_;           // by parameter, in this pass
  std::vector<bool> used_;            // by parameter, since the last synchronised pass (no_sync included)
  std::vector<std::size_t> arrival_;  // order of gradients in this pass
  std::vector<std::size_t> adopted_order_;  // the arrival order that buckets follow; empty before
  bool order_is_new_ = false;               // buckets follow it from the next pass on
  bool began_ = false;                      // a gradient has arrived, under no_sync or not
  bool static_graph_known_ = false;
  std::vector<bool> unused_here_;      // static graph: never waited for on this rank
  std::vector<bool> unused_anywhere_;  // static graph: no rank has a gradient
  long long synchronised_passes_ = 0;
  const std::shared_ptr<DriftCheck> drift_;  // the announcement carries its samples
  BackwardTrace trace_;
  bool weight_is_known_ = false;  // in this pass
};

}  // namespace rondo
