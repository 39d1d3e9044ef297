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

// Is told of gradients by GradientHooks.
class GradientListener {
 public:
  // A backward pass has completed the gradient of a parameter.
  virtual void arrived(std::size_t parameter) = 0;

 protected:
  ~GradientListener() = default;
};

// For as long as it lives, tells the number of each parameter whose gradient a backward pass has accumulated
// into `.grad`, on the thread that runs that part of backward. Hooks that somebody installed before keep
// being called, first. Not to be made or destroyed during a backward pass.
class GradientHooks {
 public:
  // `listener` outlives the object. `is_sole`: nobody else may combine gradients of the parameters
  // (require_unprepared()).
  GradientHooks(const std::vector<ModelTensor>& parameters, GradientListener& listener, bool is_sole = true);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<ModelTensor> parameters_;
  // Null after destruction: a hook that could not be removed does nothing.
  std::shared_ptr<GradientListener*> listener_;
};

// Throws UsageError when one of the parameters has a sole GradientHooks that lives: a prepared model or a
// DistributedDataParallel has taken charge of it.
void require_unprepared(const std::vector<ModelTensor>& parameters);

// Takes a model's gradients from autograd's hooks to the queue of communication. They leave in buckets, each
// when it is complete, and strictly in one order: the same on all ranks, whatever order a backward pass
// takes. How a bucket travels, and when a pass begins and ends, derived classes say: for whole gradients
// (ddp/gradient_reducer.h) and for units of a model (sharded/unit_reducer.h). Calls come one at a time; with
// parameters on several devices arrived() is called from several threads, and the derived class sees to that.
class Reducer : private GradientListener {
 protected:
  // arrived() is told of `parameters` by their numbers. The announcement outlives the object and tells the
  // averaging weights.
  Reducer(const std::vector<ModelTensor>& parameters, StepAnnouncement& announcement)
      : announcement_(announcement), hooks_(parameters, *this) {}
  ~Reducer() = default;

  // The turn of a complete bucket has come: hands it to the queue, without waiting for the bucket.
  virtual void send(std::size_t bucket) = 0;
  // The bucket whose turn is the `place`-th of a pass.
  virtual std::size_t in_turn(std::size_t place) const { return place; }

  // A pass begins. `gradients`: by bucket, how many make it complete; 0 where only complete() does.
  void begin(const std::vector<std::size_t>& gradients);
  // One more gradient of the bucket is there. Whether that is the last: then complete() is to be called.
  bool add(std::size_t bucket);
  // No more gradients of the buckets from `begin` to before `end` come in this pass: they have their turn.
  void complete(std::size_t begin, std::size_t end);
  std::size_t buckets() const { return buckets_.size(); }
  // When the bucket was complete, as monotonic_ns().
  std::int64_t ready_ns(std::size_t bucket) const { return buckets_[bucket].ready_ns; }
  // How much this rank's gradients count in this pass. The first call waits for what the ranks announce.
  const GradientWeight& announced_weight(bool divide_by_active);

 private:
  struct Progress {
    std::size_t awaited = 0;  // gradients that are not there
    bool complete = false;
    std::int64_t ready_ns = 0;
  };

  StepAnnouncement& announcement_;
  std::vector<Progress> buckets_;         // of this pass
  std::size_t next_ = 0;                  // turn
  std::optional<GradientWeight> weight_;  // of this pass, once known
  GradientHooks hooks_;
};

// By flag, how many ranks have set theirs. Collective.
std::vector<int> count_ranks(const std::vector<bool>& flags, const Group& group);

}  // namespace rondo
