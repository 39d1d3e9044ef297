#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <thread>
#include <torch/csrc/distributed/c10d/Work.hpp>

namespace rondo {

// Ends waits for sends to ranks that are gone. When a connection ends, Gloo wakes whoever waits for a
// receive, or for a send that has not begun; it forgets a send of which a part has been written
// (Pair::signalException in gloo/transport/tcp/pair.cc, seen in April 2026), and that wait would last until
// its deadline. A thread therefore tries connections under which a send has been waited for a while. Any
// thread may call all of this but stop().
class SendWatch {
 public:
  // Throws when the connection to a rank has ended. Every call may leave some ten bytes behind in both
  // processes for as long as the connection lasts, so the watch calls it less often the longer it has.
  using Probe = std::function<void(int peer)>;

  explicit SendWatch(Probe probe) : probe_(std::move(probe)) {}
  SendWatch(const SendWatch&) = delete;
  SendWatch& operator=(const SendWatch&) = delete;
  ~SendWatch() { stop(); }

  // Work::wait() of a send to `peer`. Throws std::runtime_error, within about two seconds, when the
  // connection has ended.
  bool wait(c10d::Work& send, int peer, std::chrono::milliseconds timeout);

  // Later waits are not watched, and the probe is not called any more. By one thread.
  void stop();

 private:
  struct Wait {
    c10d::Work* send;
    int peer;
    int rounds = 0;       // that it has lasted
    int lost_rounds = 0;  // since its connection has been seen to be at its end
  };
  // Of one connection.
  struct Tries {
    std::uint64_t made = 0;
    std::uint64_t rounds_left = 0;  // until the next
  };

  void watch();
  void look_at_waits();

  const Probe probe_;
  std::mutex mutex_;  // protects all below
  std::condition_variable changed_;
  std::list<Wait> waits_;
  std::map<int, Tries> tries_;  // by peer
  bool idle_ = false;           // the thread waits for a wait to begin
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace rondo
