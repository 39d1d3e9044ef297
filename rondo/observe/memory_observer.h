#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/base/replica.h"
#include "rondo/format/trace.h"
#include "rondo/memory/tracker.h"
#include "rondo/nn/unit_state.h"

namespace rondo {

// Memory of this process as the kernel counts it.
struct ProcessMemory {
  Bytes rss;       // resident now; shared pages count in full
  Bytes peak_rss;  // largest rss so far
  Bytes pss;       // resident now; a page shared by n processes counts as 1/n. Sums over ranks are true
};

// Largest resident size so far. Costs about a microsecond. Any thread.
Bytes peak_rss();

// Reads /proc/self/smaps_rollup, which walks all pages: milliseconds for a large process, so not for every
// step. `pss` is 0 where the kernel does not tell it. Any thread.
ProcessMemory process_memory();

// Pages that belong to this process alone: no mapped files, no shared memory. Tens of microseconds. Any
// thread.
Bytes private_memory();

// Follows the peak of the memory that training has in use. One thread uses an object.
class MemoryMeter {
 public:
  // `tracked` returns the bytes held now by an allocator that tracks its own memory (shared segments in full
  // at the rank that owns them). Without it the meter takes the process's private and shared-memory pages,
  // without mapped files.
  explicit MemoryMeter(std::function<Bytes()> tracked = {}) : tracked_(std::move(tracked)) {}

  // Looks now and returns the largest value seen so far. Tens of microseconds without such an allocator.
  Bytes sample();
  // Largest value seen by sample().
  Bytes peak() const { return peak_; }
  // Looks at the process's PSS (smaps_rollup) now and returns the largest seen so far.
  Bytes sample_pss();
  // Largest value seen by sample_pss().
  Bytes peak_pss() const { return peak_pss_; }

 private:
  std::function<Bytes()> tracked_;
  Bytes peak_;
  Bytes peak_pss_;
};

// Labels the memory that training a model allocates: activations in forward (and in the second
// forward of checkpointed units), temporaries in backward, and the gradients of parameters when a unit's
// backward has ended; each with its unit. Follows tracked memory over the steps that are traced. Attach it
// before a strategy's observers, so that these find its labels and put their own on top. The thread that
// trains uses it; autograd's threads, which run the backward pass of devices, join a phase with the first
// unit that they reach in it.
class MemoryObserver final : public UnitObserver {
 public:
  // `tracker` must outlive the object.
  explicit MemoryObserver(MemoryTracker& tracker) : tracker_(tracker) {}

  // Labels parameters and buffers of `model`, which may be tracked under any label, with their units.
  // Call it before the first pass, and again when a strategy has put others in their place.
  void label_parameters(const torch::nn::Module& model);
  // Labels the gradients of `model`'s parameters, with the units of parameters of the same name in the model
  // that label_parameters() saw.
  void label_gradients(const torch::nn::Module& model);

  // Puts this thread into `phase` (a text that lives for ever) of `step`: memory that it allocates outside
  // units counts as `category`. Autograd's threads follow when they reach a unit.
  void enter_phase(std::int64_t step, const char* phase, MemoryCategory category);
  // Ends the phase, and all labels that an exception left behind in it.
  void leave_phase();

  // Takes tracked memory at every moment that observers see, and the largest moment in between; null ends it.
  void trace(std::function<void(const TraceCounter&)> sink);

  void pre_forward(UnitState& unit) override;
  void post_forward(UnitState& unit) override;
  void pre_backward(UnitState& unit) override;
  void post_backward(UnitState& unit) override;
  void pre_recompute(UnitState& unit) override;
  void post_recompute(UnitState& unit) override;

 private:
  // Puts the calling thread into the phase, if another thread has entered it. Ends all labels that a failed
  // pass left behind on the calling thread.
  void join_phase();
  void enter(const UnitState& unit, MemoryCategory category);
  void leave(const UnitState& unit);
  void sample();

  MemoryTracker& tracker_;
  struct Known {
    MemoryUnit number = kRootMemoryUnit;
    std::vector<at::Tensor> parameters = {};  // the unit's own, without those of units inside
  };
  std::map<const UnitState*, Known> units_;
  std::map<std::string, MemoryUnit> unit_of_;  // by name of parameter

  // The phase: autograd's threads read it while the thread that entered it waits for their backward pass.
  bool in_phase_ = false;
  std::int64_t phases_ = 0;  // so far
  MemoryMoment moment_ = {};
  MemoryCategory category_ = MemoryCategory::other;
  std::thread::id thread_;   // that entered it
  ReplicaIdentity numbers_;  // of that thread
  std::size_t depth_ = 0;    // of that thread's labels before the phase

  std::mutex mutex_;                                // protects joined_
  std::map<std::thread::id, std::int64_t> joined_;  // the last phase that another thread has joined
  std::function<void(const TraceCounter&)> sink_;
};

}  // namespace rondo
