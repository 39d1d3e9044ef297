#pragma once

#include <c10/core/Stream.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

// Work that goes on while the host does something else: collectives of the simulated NCCL. Operators run at
// once, so a stream is behind nothing else. What is launched on a stream waits on the host for such work
// before it, and so do copies, synchronisations and events, as on a card the stream or the host would.
namespace rondo::sim {

// Any thread.
class StreamWork {
 public:
  // It has ended; with an error, which everyone who waits for it gets.
  void end(std::exception_ptr error = nullptr);
  bool has_ended() const;
  std::exception_ptr error() const;  // null before its end
  // Blocks until it has ended; throws its error.
  void wait() const;
  // Returns whether it has ended within `timeout`; throws its error.
  bool wait_for(std::chrono::milliseconds timeout) const;

 private:
  mutable std::mutex mutex_;  // protects what follows
  mutable std::condition_variable changed_;
  bool has_ended_ = false;
  std::exception_ptr error_;
};

using StreamWorks = std::vector<std::shared_ptr<StreamWork>>;

// The works that the stream is behind now, as an event would record them.
StreamWorks works_before(const c10::Stream& stream);
// Puts all later operations of the stream behind these works.
void put_behind(const c10::Stream& stream, const StreamWorks& works);
// Waits on the host until nothing is before the stream's next operation. Throws the error of what was.
void finish(const c10::Stream& stream);
// The same for all streams of a device.
void finish_device(c10::DeviceIndex index);

}  // namespace rondo::sim
