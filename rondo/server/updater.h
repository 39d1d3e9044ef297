#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/server/memory.h"

namespace rondo::server {

// The thread that applies pushes; single-threaded. Every update is recorded in the memory before it is made,
// so that an Updater of another process on the same memory can finish an interrupted update:
// - the gradient stays in its worker's area until the update is acknowledged;
// - new values of a block are computed into the record, which is then marked valid and copied to its place.
//   Both steps can be repeated with the same result.
class Updater {
 public:
  // Finishes an interrupted update, if there is one.
  explicit Updater(ServerMemory memory);

  // Processes the next push or synchronous step, round-robin over workers. Returns false if there is nothing
  // to do or the memory is held.
  bool run_once();
  // Sleeps until a worker pushes, at most for `patience`.
  void wait(Duration patience);

  // For recovery tests: called at every point where a kill would leave the memory in its current state.
  std::function<void()> at_every_point;

 private:
  // Gradient of one variable from one worker.
  struct Source {
    const float* gradient;
    double share;
  };
  // Changed rows in ascending order, with their gradients.
  struct Rows {
    const std::uint64_t* numbers = nullptr;
    const float* gradients = nullptr;
    std::size_t count = 0;
  };

  void process(std::size_t worker, const Entry& entry);
  void finish_step(std::size_t worker, const Entry& entry);
  bool is_acceptable(std::size_t worker, const Entry& entry);
  void refuse_unacceptable(std::size_t worker, std::uint64_t end);
  bool run_synchronous();
  std::uint64_t end_of_step(std::size_t worker) const;
  void drop_late(std::size_t worker, std::uint64_t end);
  void run_task();
  void run_variable(std::size_t variable);
  void run_blocks(std::size_t variable, const OptimizerSpec& spec, const std::vector<Source>& sources,
                  const Rows* rows);
  void write_block(std::size_t variable, int slots, std::size_t first, std::size_t count, const Rows* rows);
  void prefetch_row(std::size_t variable, int slots, std::size_t row) const;
  void prepare_slots(std::size_t variable, const OptimizerSpec& spec);
  Rows merge_rows(std::size_t variable, const std::vector<const Entry*>& entries,
                  const std::vector<std::size_t>& workers, const std::vector<double>& shares);
  void acknowledge(std::size_t worker, std::uint64_t tail);
  void announce_progress();
  void point() const {
    if (at_every_point) at_every_point();
  }

  ServerMemory memory_;
  std::size_t next_ = 0;                // worker to check first
  std::vector<std::uint64_t> checked_;  // by worker: end of the last synchronous step that was checked
  std::vector<std::uint64_t> merged_numbers_;
  std::vector<float> merged_gradients_;
  std::vector<float> mean_;  // mean of a block's gradients
};

}  // namespace rondo::server
