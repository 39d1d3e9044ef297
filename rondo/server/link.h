#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/server/memory.h"

namespace rondo::server {

// What the servers know of the job's workers.
struct WorkerFigures {
  WorkerPhase phase = WorkerPhase::absent;
  std::uint64_t clock = 0, begun = 0, lost_steps = 0, refused = 0, late = 0, returns = 0;
};
struct ServerFigures {
  std::vector<WorkerFigures> workers;
  std::uint64_t sync_step = 0;
  std::uint64_t recovered = 0;
  bool open = false;         // the chief has written the values
  std::uint64_t queued = 0;  // pushes of all workers that are not applied
};

// A gradient in fewer bytes.
struct EncodedGradient {
  std::string codec;  // for collective::make_codec
  std::span<const std::byte> bytes;
};

// A worker's way to one server's variables, by number: shared memory on one host, messages between hosts.
// One thread uses an object. What waits gives up at the deadline with a TimeoutError that says what it waited
// for and how long the server's queue is.
class Link {
 public:
  virtual ~Link() = default;

  // Copies a variable, in float32, each block of 64 KiB as it was at one moment. What this worker has pushed
  // for it is in there.
  virtual void pull(std::size_t variable, std::span<float> to, const Deadline& deadline) = 0;
  // Rows of a sparse variable, each of row_elements.
  virtual void pull_rows(std::size_t variable, std::span<const std::uint64_t> rows, float* to,
                         const Deadline& deadline) = 0;
  // The rows that changed since `cursor`, which moves on; empty when they are too many to be known: then all
  // may have. A cursor begins with kNoCursor.
  virtual std::optional<std::vector<std::uint64_t>> changed_rows(std::size_t variable, std::uint64_t& cursor,
                                                                 const Deadline& deadline) = 0;
  // Hands a gradient over. Waits only while this worker's last gradient of that variable is not applied.
  virtual void push(std::size_t variable, std::span<const float> gradient, const Entry& how,
                    const Deadline& deadline) = 0;
  // The same; throws DataError when the bytes are no encoding of so many values.
  virtual void push_encoded(std::size_t variable, const EncodedGradient& gradient, const Entry& how,
                            const Deadline& deadline) = 0;
  virtual void push_rows(std::size_t variable, std::span<const std::uint64_t> rows, const float* gradients,
                         const Entry& how, const Deadline& deadline) = 0;
  // This worker's step `step` begins, with bounded staleness when the others are far enough; and ends,
  // which does not wait. With synchronous steps `step` is the servers' sync_step when the values were pulled.
  virtual void begin_step(std::uint64_t step, const Deadline& deadline) = 0;
  virtual void end_step(std::uint64_t step, double weight, const Deadline& deadline) = 0;
  // All that this worker has pushed is applied (or refused, or late).
  virtual void flush(const Deadline& deadline) = 0;
  virtual ServerFigures figures() = 0;
  // This worker has done its steps: nobody waits for it any more.
  virtual void rest() = 0;
  // The chief has written the values.
  virtual bool is_open() = 0;

  // For checkpoints, by the chief: nothing is applied between hold() and release().
  virtual void hold(const Deadline& deadline) = 0;
  virtual void release() = 0;
  // A variable's values (slot -1) or what its optimizer keeps, and the number of its updates.
  virtual std::uint64_t read_state(std::size_t variable, int slot, std::span<float> to) = 0;
  virtual void write_state(std::size_t variable, int slot, std::span<const float> from, std::uint64_t updates,
                           const OptimizerSpec& spec) = 0;
};

inline constexpr std::uint64_t kNoCursor = ~std::uint64_t{0};

}  // namespace rondo::server
