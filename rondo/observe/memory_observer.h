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
  Bytes rss;       // resident set size; shared pages count in full
  Bytes peak_rss;  // largest rss so far
  Bytes pss;  // proportional set size: a page shared by n processes counts as 1/n, so that sums over ranks
              // are correct
};

// Returns the largest resident set size so far. Takes about a microsecond. Any thread.
Bytes peak_rss();

// Reads /proc/self/smaps_rollup, for which the kernel walks all pages: this takes milliseconds in a large
// process, so do not call it in every step. `pss` is 0 if the kernel does not report it. Any thread.
ProcessMemory process_memory();

// Returns the size of the pages that belong to this process alone, without mapped files and shared memory.
// Takes tens of microseconds. Any thread.
Bytes private_memory();

// A meter of the peak memory that training uses. One thread uses an object.
class MemoryMeter {
 public:
  // `tracked` returns the bytes in use according to an allocator that tracks its memory (shared segments
  // count in full on the rank that owns them). Without it, the meter counts the process's private and
  // shared-memory pages, without mapped files.
  explicit MemoryMeter(std::function<Bytes()> tracked = {}) : tracked_(std::move(tracked)) {}

  // Measures now and returns the largest value so far. Takes tens of microseconds without such an allocator.
  Bytes sample();
  // Returns the largest value measured by sample().
  Bytes peak() const { return peak_; }
  // Reads the process's PSS (smaps_rollup) now and returns the largest value so far.
  Bytes sample_pss();
  // Returns the largest value measured by sample_pss().
  Bytes peak_pss() const { return peak_pss_; }

 private:
  std::function<Bytes()> tracked_;
  Bytes peak_;
  Bytes peak_pss_;
};

// Labels the memory that training a model allocates, with its unit: activations in forward (and in the second
// forward of checkpointed units), temporaries in backward, and gradients of parameters after a unit's
// backward has ended. Samples tracked memory during traced steps. Attach it before a strategy's observers, so
// that their labels override its labels. Used by the training thread; autograd's threads, which run the
// backward pass of devices, join a phase at the first unit that they reach in it.
class MemoryObserver final : public UnitObserver {
 public:
  // `tracker` must outlive the object.
  explicit MemoryObserver(MemoryTracker& tracker) : tracker_(tracker) {}

  // Labels parameters and buffers of `model`, which may be tracked under any label, with their units. Call it
  // before the first pass, and again after a strategy has replaced them.
  void label_parameters(const torch::nn::Module& model);
  // Labels the gradients of `model`'s parameters with the units of the parameters of the same names in the
  // model passed to label_parameters().
  void label_gradients(const torch::nn::Module& model);

  // Puts this thread into `phase` (a string with static lifetime) of `step`: memory that it allocates outside
  // units is labelled with `category`. Autograd's threads follow when they reach a unit.
  void enter_phase(std::int64_t step, const char* phase, MemoryCategory category);
  // Ends the phase, and all labels that remain in it after an exception.
  void leave_phase();

  // Passes samples of tracked memory to `sink` at every event that the observer receives, including the
  // largest value since the previous event. A null `sink` stops sampling.
  void trace(std::function<void(const TraceCounter&)> sink);

  void pre_forward(UnitState& unit) override;
  void post_forward(UnitState& unit) override;
  void pre_backward(UnitState& unit) override;
  void post_backward(UnitState& unit) override;
  void pre_recompute(UnitState& unit) override;
  void post_recompute(UnitState& unit) override;

 private:
  // Puts the calling thread into the phase if another thread has entered it. Ends all labels that remain on
  // the calling thread after a failed pass.
  void join_phase();
  void enter(const UnitState& unit, MemoryCategory category);
  void leave(const UnitState& unit);
  void sample();

  MemoryTracker& tracker_;
  struct Known {
    MemoryUnit number = kRootMemoryUnit;
    std::vector<at::Tensor> parameters = {};  // parameters of the unit itself, without those of inner units
  };
  std::map<const UnitState*, Known> units_;
  std::map<std::string, MemoryUnit> unit_of_;  // unit of each parameter, by the parameter's name

  // The current phase. Autograd's threads read it while the thread that entered it waits for their backward
  // pass.
  bool in_phase_ = false;
  std::int64_t phases_ = 0;  // so far
  MemoryMoment moment_ = {};
  MemoryCategory category_ = MemoryCategory::other;
  std::thread::id thread_;   // thread that entered the phase
  ReplicaIdentity numbers_;  // replica and rank numbers of the thread that entered the phase
  std::size_t depth_ = 0;    // number of labels of the thread before it entered the phase

  std::mutex mutex_;                                // protects joined_
  std::map<std::thread::id, std::int64_t> joined_;  // last phase that each other thread has joined
  std::function<void(const TraceCounter&)> sink_;
};

}  // namespace rondo
