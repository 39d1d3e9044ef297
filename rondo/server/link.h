#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/server/memory.h"

namespace rondo::server {

// A server's statistics about one worker.
struct WorkerFigures {
  WorkerPhase phase = WorkerPhase::absent;
  std::uint64_t clock = 0, begun = 0, lost_steps = 0, refused = 0, late = 0, returns = 0;
};
struct ServerFigures {
  std::vector<WorkerFigures> workers;
  std::uint64_t sync_step = 0;
  std::uint64_t recovered = 0;
  bool open = false;         // the chief has written the values
  std::uint64_t queued = 0;  // pushes of all workers that are not applied yet
};

// A compressed gradient.
struct EncodedGradient {
  std::string codec;  // codec name for collective::make_codec
  std::span<const std::byte> bytes;
};

// A worker's connection to the variables of one server, by variable number: through shared memory on one
// host, through messages between hosts. Not thread-safe. At the deadline, blocking calls throw a TimeoutError
// that names the awaited event and the length of the server's queue.
class Link {
 public:
  virtual ~Link() = default;

  // Copies a variable in float32. Each block of 64 KiB is consistent. Includes all earlier pushes of this
  // worker to the variable.
  virtual void pull(std::size_t variable, std::span<float> to, const Deadline& deadline) = 0;
  // Copies rows of a sparse variable, row_elements values each.
  virtual void pull_rows(std::size_t variable, std::span<const std::uint64_t> rows, float* to,
                         const Deadline& deadline) = 0;
  // Returns the rows that changed since `cursor` and advances it. Empty if too many changed to be recorded:
  // any row may have changed. A cursor starts as kNoCursor.
  virtual std::optional<std::vector<std::uint64_t>> changed_rows(std::size_t variable, std::uint64_t& cursor,
                                                                 const Deadline& deadline) = 0;
  // Pushes a gradient. Blocks only while this worker's previous gradient of the variable is not applied.
  virtual void push(std::size_t variable, std::span<const float> gradient, const Entry& how,
                    const Deadline& deadline) = 0;
  // Pushes a compressed gradient. Throws DataError if the bytes are not a valid encoding of the variable's
  // size.
  virtual void push_encoded(std::size_t variable, const EncodedGradient& gradient, const Entry& how,
                            const Deadline& deadline) = 0;
  virtual void push_rows(std::size_t variable, std::span<const std::uint64_t> rows, const float* gradients,
                         const Entry& how, const Deadline& deadline) = 0;
  // Begin and end this worker's step `step`. begin_step() blocks with bounded staleness until the other
  // workers have progressed far enough; end_step() does not wait for others. With synchronous steps, `step`
  // is the servers' sync_step when the values were pulled.
  virtual void begin_step(std::uint64_t step, const Deadline& deadline) = 0;
  virtual void end_step(std::uint64_t step, double weight, const Deadline& deadline) = 0;
  // Blocks until all pushes of this worker are applied (or refused, or dropped as late).
  virtual void flush(const Deadline& deadline) = 0;
  virtual ServerFigures figures() = 0;
  // Reports that this worker has done its steps: nothing waits for it any more.
  virtual void rest() = 0;
  // Returns whether the chief has written the values.
  virtual bool is_open() = 0;

  // For checkpoints by the chief: nothing is applied between hold() and release().
  virtual void hold(const Deadline& deadline) = 0;
  virtual void release() = 0;
  // Read and write a variable's values (slot -1) or an optimizer slot; `updates` is the number of the
  // variable's updates.
  virtual std::uint64_t read_state(std::size_t variable, int slot, std::span<float> to) = 0;
  virtual void write_state(std::size_t variable, int slot, std::span<const float> from, std::uint64_t updates,
                           const OptimizerSpec& spec) = 0;
};

inline constexpr std::uint64_t kNoCursor = ~std::uint64_t{0};

}  // namespace rondo::server
