#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/model_tensors.h"
#include "rondo/parallel/gradients/step_announcement.h"

namespace rondo {

// Callback interface of GradientHooks.
class GradientListener {
 public:
  // Called when a backward pass has accumulated the gradient of the parameter.
  virtual void arrived(std::size_t parameter) = 0;

 protected:
  ~GradientListener() = default;
};

// Autograd hooks that call a listener each time a backward pass has accumulated a gradient into `.grad`. The
// call passes the parameter's index and runs on autograd's thread. Hooks that were installed before stay
// active and run first. Must not be created or destroyed during a backward pass.
class GradientHooks {
 public:
  // `listener` must outlive the object. `is_sole`: no other object may reduce gradients of the parameters
  // (see require_unprepared()).
  GradientHooks(const std::vector<ModelTensor>& parameters, GradientListener& listener, bool is_sole = true);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<ModelTensor> parameters_;
  // Set to null by the destructor, so that a hook that could not be removed does nothing.
  std::shared_ptr<GradientListener*> listener_;
};

// Throws UsageError if a sole GradientHooks exists for one of the parameters: a prepared model or a
// DistributedDataParallel already reduces its gradients.
void require_unprepared(const std::vector<ModelTensor>& parameters);

// Base of the reducers, which move gradients from autograd's hooks to the communication queue. A bucket is
// launched when it is complete, and in one order that is the same on all ranks, independent of the order of a
// backward pass. Derived classes decide how a bucket is transferred and when a pass begins and ends:
// ddp/gradient_reducer.h for whole gradients, sharded/unit_reducer.h for units of a model. Not thread-safe.
// With parameters on several devices, several threads call arrived(); the derived class serialises those
// calls.
class Reducer : private GradientListener {
 protected:
  // arrived() gets indices into `parameters`. `announcement` provides the averaging weights and must outlive
  // the object.
  Reducer(const std::vector<ModelTensor>& parameters, StepAnnouncement& announcement)
      : announcement_(announcement), hooks_(parameters, *this) {}
  ~Reducer() = default;

  // Hands a complete bucket to the queue. Called in launch order. Does not block on the bucket.
  virtual void send(std::size_t bucket) = 0;
  // Returns the bucket that is launched at position `place` of a pass.
  virtual std::size_t in_turn(std::size_t place) const { return place; }

  // Begins a pass. `gradients`: for each bucket, the number of gradients that complete it; 0 if only
  // complete() does.
  void begin(const std::vector<std::size_t>& gradients);
  // Counts one gradient of the bucket. Returns true if it was the last; the caller then calls complete().
  bool add(std::size_t bucket);
  // Marks the buckets in [begin, end) as complete for this pass and sends all buckets whose turn it is.
  void complete(std::size_t begin, std::size_t end);
  std::size_t buckets() const { return buckets_.size(); }
  // Returns the time at which the bucket was completed, as monotonic_ns().
  std::int64_t ready_ns(std::size_t bucket) const { return buckets_[bucket].ready_ns; }
  // Returns the weight of this rank's gradients in this pass. The first call blocks until all ranks have
  // announced their steps.
  const GradientWeight& announced_weight(bool divide_by_active);

 private:
  struct Progress {
    std::size_t awaited = 0;  // gradients still missing
    bool complete = false;
    std::int64_t ready_ns = 0;
  };

  StepAnnouncement& announcement_;
  std::vector<Progress> buckets_;         // of the current pass
  std::size_t next_ = 0;                  // position of the next bucket to send
  std::optional<GradientWeight> weight_;  // of the current pass; set by announced_weight()
  GradientHooks hooks_;
};

// Returns, for each flag, the number of ranks that have set it. Collective.
std::vector<int> count_ranks(const std::vector<bool>& flags, const Group& group);

}  // namespace rondo
