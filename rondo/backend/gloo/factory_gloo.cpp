// Compiled with USE_C10D_GLOO and Gloo's headers, which no other file sees. libtorch contains Gloo's code.
#include <ATen/ops/empty.h>
#include <signal.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <limits>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine/failure_record.h"
#include "rondo/backend/gloo/factory.h"
#include "rondo/backend/gloo/host_gloo.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"

namespace rondo {
namespace {

// Ends waits for sends to lost ranks. When a connection ends, Gloo wakes threads that wait for a receive, or
// for a send that has not begun; it forgets a partly written send (Pair::signalException in
// gloo/transport/tcp/pair.cc, seen in April 2026), whose wait would last until its deadline. Therefore a
// thread probes connections with a long wait for a send. All members but stop() may be called by any thread.
class SendWatch {
 public:
  // Throws if the connection to a rank has ended. Every call may use some ten bytes in both processes until
  // the connection ends, so the watch calls it less and less often.
  using Probe = std::function<void(int peer)>;

  explicit SendWatch(Probe probe) : probe_(std::move(probe)) {}
  SendWatch(const SendWatch&) = delete;
  SendWatch& operator=(const SendWatch&) = delete;
  ~SendWatch() { stop(); }

  // Calls Work::wait() of a send to `peer`. Throws std::runtime_error, within about two seconds, if the
  // connection has ended.
  bool wait(c10d::Work& send, int peer, std::chrono::milliseconds timeout);

  // Stops watching: later waits are not watched, and the probe is no longer called. One thread only.
  void stop();

 private:
  struct Wait {
    c10d::Work* send;
    int peer;
    int rounds = 0;       // duration so far
    int lost_rounds = 0;  // rounds since a probe found the connection closed
  };
  // Probes of one connection.
  struct Tries {
    std::uint64_t made = 0;
    std::uint64_t rounds_left = 0;  // until the next probe
  };

  void watch();
  void look_at_waits();

  const Probe probe_;
  std::mutex mutex_;  // protects all members below
  std::condition_variable changed_;
  std::list<Wait> waits_;
  std::map<int, Tries> tries_;  // by peer
  bool idle_ = false;           // the thread waits for a wait to begin
  bool stopped_ = false;
  std::thread thread_;
};

constexpr std::chrono::milliseconds kRound{250};
// Rounds between a failed probe and the abort of a send. The send may have ended before its connection did,
// and its waiter may not have run since. Counted in rounds, not in time, because a suspended machine runs no
// rounds.
constexpr int kLostRounds = 5;
// Number of probes after which the interval grows by one round; it begins with one round. That is about
// 13,000 probes a day.
constexpr std::uint64_t kTriesPerRound = 250;

bool SendWatch::wait(c10d::Work& send, int peer, std::chrono::milliseconds timeout) {
  std::list<Wait>::iterator own;
  {
    const std::lock_guard lock(mutex_);
    own = waits_.insert(waits_.end(), {&send, peer});
    if (!stopped_ && !thread_.joinable()) thread_ = std::thread([this] { watch(); });
    if (idle_) changed_.notify_one();
  }
  const auto end = [&] {
    const std::lock_guard lock(mutex_);
    const bool lost = own->lost_rounds == kLostRounds;
    waits_.erase(own);
    return lost;
  };
  bool done = false;
  try {
    done = send.wait(timeout);
  } catch (...) {
    end();
    throw;
  }
  if (end() && !done) throw std::runtime_error("the connection has ended");
  return done;
}

void SendWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void SendWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    if (waits_.empty()) {
      idle_ = true;
      changed_.wait(lock);
      idle_ = false;
      continue;
    }
    changed_.wait_for(lock, kRound, [this] { return stopped_; });
    if (!stopped_) look_at_waits();
  }
}

void SendWatch::look_at_waits() {
  for (auto& [peer, tries] : tries_) {
    if (tries.rounds_left > 0) --tries.rounds_left;
  }
  for (Wait& wait : waits_) {
    if (wait.lost_rounds > 0) {
      if (wait.lost_rounds < kLostRounds && ++wait.lost_rounds == kLostRounds) wait.send->abort();
      continue;
    }
    Tries& tries = tries_[wait.peer];
    if (++wait.rounds < 2 || tries.rounds_left > 0) continue;
    tries.rounds_left = 1 + ++tries.made / kTriesPerRound;
    try {
      probe_(wait.peer);
    } catch (const std::exception&) {
      wait.lost_rounds = 1;
    }
  }
}

// Ignores SIGPIPE: Gloo writes to sockets whose peer may just have died, and the signal would end the process
// before it can report the lost rank. Keeps a program's own handler.
void ignore_broken_pipes() {
  struct sigaction now {};
  if (sigaction(SIGPIPE, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  now.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &now, nullptr);
}

class WatchedSend final : public ForwardedWork {
 public:
  WatchedSend(c10::intrusive_ptr<c10d::Work> send, int peer, std::shared_ptr<SendWatch> watch)
      : ForwardedWork(std::move(send)), peer_(peer), watch_(std::move(watch)) {}

  bool wait(std::chrono::milliseconds timeout) override { return watch_->wait(work(), peer_, timeout); }

 private:
  int peer_;
  std::shared_ptr<SendWatch> watch_;
};

std::string begun_key(int rank) { return str("gloo/begun/", rank); }

// Returns the members that have not begun to connect, by group rank; empty also if the store is lost.
std::vector<int> not_begun(const BackendRequest& request) {
  std::vector<int> missing;
  try {
    for (int rank = 0; rank < request.size; ++rank) {
      if (!request.store->check({begun_key(rank)})) missing.push_back(rank);
    }
  } catch (const std::exception&) {
    return {};
  }
  return missing;
}

// Throws an error that names the members that did not arrive, if other members have started to wait for them.
[[noreturn]] void throw_not_connected(const BackendRequest& request, const std::string& reason, bool waited) {
  const std::string text = str("Gloo could not connect rank ", request.rank, " of ", request.size,
                               " in group '", request.group_name, "': ");
  const std::vector<int> missing = waited ? not_begun(request) : std::vector<int>{};
  if (missing.empty())
    throw Error(str(text, reason, ". GLOO_SOCKET_IFNAME names the network interface to use."));
  std::vector<int> names;
  for (const int rank : missing)
    names.push_back(request.world_ranks.empty() ? rank : request.world_ranks[static_cast<std::size_t>(rank)]);
  throw TimeoutError(str(text, reason, "; missing: rank", names.size() > 1 ? "s " : " ", join(names, ", ")),
                     missing);
}

// Gloo with sends that fail when the peer is lost.
class WatchedGloo final : public HostGloo {
 public:
  using HostGloo::HostGloo;
  WatchedGloo(const WatchedGloo&) = delete;
  WatchedGloo& operator=(const WatchedGloo&) = delete;
  ~WatchedGloo() override { watch_->stop(); }

  Work send(Tensors& tensors, int destination, int tag) override {
    return c10::make_intrusive<WatchedSend>(HostGloo::send(tensors, destination, tag), destination, watch_);
  }

 private:
  // Tag of the probe, which no message uses.
  static constexpr int kProbeTag = std::numeric_limits<int>::max();

  std::shared_ptr<SendWatch> watch_ = std::make_shared<SendWatch>([this](int peer) {
    std::vector<at::Tensor> nothing{at::empty({1}, at::kByte)};
    recv(nothing, peer, kProbeTag);
  });
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const BackendRequest& request) {
  using c10d::ProcessGroupGloo;
  ignore_broken_pipes();
  auto options = ProcessGroupGloo::Options::create(
      std::chrono::duration_cast<std::chrono::milliseconds>(request.timeout));
  // One thread runs a rank's collectives in the order in which they were started; more threads would only
  // compete for the processor.
  options->threads = 2;
  options->global_ranks_in_group.assign(request.world_ranks.begin(), request.world_ranks.end());
  options->group_name = request.group_name;
  bool waits = false;
  try {
    if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME");
        interface != nullptr && *interface != '\0') {
      for (const std::string& name : split(interface, ',')) {
        options->devices.push_back(ProcessGroupGloo::createDeviceForInterface(name));
      }
    } else if (!request.one_host() && !request.local_address.empty()) {
      options->devices.push_back(ProcessGroupGloo::createDeviceForHostname(request.local_address));
    } else if (request.one_host() &&
               (std::getenv(kStoreDescriptorVariable) != nullptr || request.size == 1)) {
      options->devices.push_back(ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    } else {
      options->devices.push_back(ProcessGroupGloo::createDefaultDevice());
    }
    const QuietLog quiet;
    waits = true;
    request.store->set(begun_key(request.rank), std::vector<std::uint8_t>{1});
    return c10::make_intrusive<WatchedGloo>(request.store, request.rank, request.size, options);
  } catch (const TimeoutError& e) {
    if (!e.ranks().empty()) throw;
    throw_not_connected(request, e.what(), waits);
  } catch (const Error&) {
    throw;
  } catch (const std::exception& e) {
    throw_not_connected(request, engine_reason(e), waits);
  }
}

bool have_gloo() { return true; }

RegisteredBackend GlooEngineFactory::engine(const Options& /*none*/) {
  return {make_gloo_backend, {.device_tensors = true}, true};
}

}  // namespace rondo
