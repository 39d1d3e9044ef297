#pragma once

#include <c10/core/Stream.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

// Work that continues while the host does something else: collectives of the simulated NCCL. Operators run
// immediately, so a stream waits for nothing else. Operations on a stream wait on the host for earlier work
// of this kind, and so do copies, synchronisations and events; on a GPU the stream or the host would wait.
namespace rondo::sim {

// Work in flight. Safe from any thread.
class StreamWork {
 public:
  // Completes the work; with an error, every waiter gets the error.
  void end(std::exception_ptr error = nullptr);
  bool has_ended() const;
  std::exception_ptr error() const;  // null before the end
  // Blocks until the work has completed; throws its error.
  void wait() const;
  // Returns true if the work completes within `timeout`; throws its error.
  bool wait_for(std::chrono::milliseconds timeout) const;

 private:
  mutable std::mutex mutex_;  // protects the members below
  mutable std::condition_variable changed_;
  bool has_ended_ = false;
  std::exception_ptr error_;
};

using StreamWorks = std::vector<std::shared_ptr<StreamWork>>;

// Returns the works that the stream currently waits for, as an event would record them.
StreamWorks works_before(const c10::Stream& stream);
// Makes all later operations of the stream wait for these works.
void put_behind(const c10::Stream& stream, const StreamWorks& works);
// Waits on the host until nothing is before the stream's next operation. Throws the error of such work.
void finish(const c10::Stream& stream);
// Calls finish() for all streams of a device.
void finish_device(c10::DeviceIndex index);

}  // namespace rondo::sim
