#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/ddp/comm_hook.h"
#include "rondo/parallel/ddp/options.h"
#include "rondo/parallel/gradients/gradient_weight.h"
#include "rondo/parallel/schedule/communication_queue.h"

namespace rondo {

// How the gradients of one model travel between ranks, in buckets. Others decide which gradients, and when;
// an exchange replaces each gradient by the sum over ranks of weight_r.scale * gradient_r. Parameters are
// numbered 0, 1, ... in the same way on all ranks, and every backward pass is: begin_backward; gradient_ready
// or gradient_missing once for every parameter; send of every bucket, in their order, when its gradients are
// there; start_all; finish. One thread at a time calls it. Errors of rondo's engines pass through, others
// become Error naming rank, group and bucket.
class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // Order in which gradients are expected, a permutation of all parameters and the same on all ranks. Not
  // during a backward pass.
  virtual void set_order(std::span<const std::size_t> order) = 0;
  // By bucket, in the order in which they are sent: its number of gradients. As set_order() has made them.
  const std::vector<std::size_t>& gradients() const { return gradients_; }
  std::size_t bucket_of(std::size_t parameter) const { return bucket_of_[parameter]; }

  // `weight` is asked for when it is first needed, since it may have to wait for other ranks.
  using WeightSource = std::function<const GradientWeight&()>;
  virtual void begin_backward(WeightSource weight);

  // The gradient of the parameter is complete, and is taken to where it travels from.
  virtual void gradient_ready(std::size_t parameter) = 0;

  // The parameter got no gradient in this backward pass: what `.grad` holds from before, or zeros, is
  // contributed.
  virtual void gradient_missing(std::size_t parameter) = 0;

  // Hands a bucket to the queue, which starts what can be started and never waits. `ready_ns`: when its last
  // gradient was there; 0 is now.
  void send(std::size_t bucket, std::int64_t ready_ns = 0);
  // Lets what is under way move on, without waiting.
  void poll() { queue_.poll(); }

  // All buckets were sent: starts every message that is left. Comes before any other collective that the
  // ranks run in the same backward pass, and before finish.
  void start_all() { queue_.start_all(); }

  // Waits until all gradients are synchronised and in `.grad`, except where `untouched` (one flag a
  // parameter; false for every gradient_ready) asks for `.grad` as it was.
  virtual void finish(const std::vector<bool>& untouched) = 0;

  // Ends a backward pass that failed half-way; leaves no operation running on this rank's memory.
  virtual void abandon() noexcept { queue_.abandon(); }

  // The operations of the last backward pass, in order; after finish(), once.
  std::vector<TraceSpan> take_spans() { return queue_.take_spans(); }

 protected:
  GradientExchange(std::vector<ModelTensor> parameters, Group group);

  // The buckets from now on, each a list of parameters.
  void set_buckets(const std::vector<std::vector<std::size_t>>& buckets);
  // Begins the reduction of a bucket.
  virtual BucketFuture start(std::size_t bucket) = 0;
  // Returns when the bucket is reduced; the result of its future.
  at::Tensor wait(std::size_t bucket) { return queue_.wait(tickets_[bucket]); }

  const GradientWeight& weight() const { return weight_(); }

  const std::vector<ModelTensor> parameters_;
  const Group group_;

 private:
  WeightSource weight_;                              // of this pass
  std::vector<std::size_t> gradients_;               // by bucket
  std::vector<std::size_t> bucket_of_;               // by parameter
  std::vector<Bytes> bytes_;                         // by bucket
  std::vector<std::string> names_;                   // by bucket, for messages: "gradients 'a' to 'b'"
  std::vector<CommunicationQueue::Ticket> tickets_;  // of the buckets that were sent in this pass
  CommunicationQueue queue_;
};

// The fastest exchange that the group's engine allows; with a hook (one whose `run` is set) the bucketed one,
// in which the hook decides what travels.
std::unique_ptr<GradientExchange> make_gradient_exchange(const std::vector<ModelTensor>& parameters,
                                                         const Group& group, const DdpOptions& options,
                                                         CommHook hook = {});

}  // namespace rondo
