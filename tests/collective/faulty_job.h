#pragma once

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/time.h"

namespace rondo::tests {

// Returns whether RONDO_FAULTS=all (`make faults`) selects every rank, operation and step, rather than a
// part.
inline bool all_faults() {
  const char* const chosen = std::getenv("RONDO_FAULTS");
  return chosen != nullptr && std::string(chosen) == "all";
}

// Ranks as processes, one of which, the victim, gets a signal in the middle of its operations.
class FaultyJob {
 public:
  // The code of a rank, which runs until an exception ends it. The victim may call strike(), which sends the
  // signal to itself. A survivor may call note_error() at the exception, before its cleanup.
  using Body = std::function<void(int rank, const std::function<void()>& strike)>;

  FaultyJob(std::string name, int ranks, int victim, int signal)
      : name_(std::move(name)), ranks_(ranks), victim_(victim), signal_(signal) {
    void* const page =
        mmap(nullptr, sizeof(Times), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) throw Error("no memory to share");
    times_ = new (page) Times();
  }
  FaultyJob(const FaultyJob&) = delete;
  FaultyJob& operator=(const FaultyJob&) = delete;
  ~FaultyJob() { munmap(times_, sizeof(Times)); }

  // Starts the ranks. Survivors must raise `Expected` and name only the victim.
  template <class Expected>
  void start(const Body& body) {
    for (int rank = 0; rank < ranks_; ++rank) {
      const pid_t child = fork();
      if (child == 0) _exit(survive<Expected>(body, rank) ? 0 : 1);
      children_.push_back(child);
    }
  }

  // Sends the signal from outside, at any operation of the victim.
  void strike() {
    times_->struck = monotonic_ns();
    kill(children_[static_cast<std::size_t>(victim_)], signal_);
  }

  // Returns whether all survivors had the right outcome; the victim has ended then too.
  bool finish() {
    bool right = true;
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == victim_) continue;
      int status = 0;
      waitpid(children_[static_cast<std::size_t>(rank)], &status, 0);
      right = right && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    const pid_t victim = children_[static_cast<std::size_t>(victim_)];
    kill(victim, SIGKILL);
    waitpid(victim, nullptr, 0);
    return right;
  }

  void note_error() {
    const long long now = monotonic_ns();
    long long seen = times_->raised;
    while (seen < now && !times_->raised.compare_exchange_weak(seen, now)) {
    }
  }

  const std::string& name() const { return name_; }
  // Time from the signal to the slowest survivor's error.
  double milliseconds() const { return static_cast<double>(times_->raised - times_->struck) / 1e6; }
  // Time since then.
  double milliseconds_since_error() const {
    return static_cast<double>(monotonic_ns() - times_->raised) / 1e6;
  }

 private:
  struct Times {
    std::atomic<long long> struck = 0;
    std::atomic<long long> raised = 0;
  };

  template <class Expected>
  bool survive(const Body& body, int rank) {
    try {
      body(rank, [this] {
        times_->struck = monotonic_ns();
        kill(getpid(), signal_);
      });
    } catch (const Expected& e) {
      if (e.ranks() == std::vector<int>{victim_}) return true;
      fprintf(stderr, "%s: rank %d blames another: %s\n", name_.c_str(), rank, e.what());
    } catch (const std::exception& e) {
      fprintf(stderr, "%s: rank %d: another error: %s\n", name_.c_str(), rank, e.what());
    }
    return false;
  }

  std::string name_;
  int ranks_;
  int victim_;
  int signal_;
  Times* times_;
  std::vector<pid_t> children_;
};

// The failed jobs, and the survivors' times, which the destructor prints.
class FaultRecord {
 public:
  FaultRecord() = default;
  FaultRecord(const FaultRecord&) = delete;
  FaultRecord& operator=(const FaultRecord&) = delete;
  ~FaultRecord() {
    if (times_.empty()) return;
    std::sort(times_.begin(), times_.end());
    const auto& [most, slowest] = times_.back();
    printf(
        "%zu faults; from the signal to the last survivor's error: median %.1f ms, 99 of 100 within %.1f ms, "
        "most "
        "%.1f ms (%s)\n",
        times_.size(), times_[times_.size() / 2].first, times_[times_.size() * 99 / 100].first, most,
        slowest.c_str());
  }
  void finish(FaultyJob& job) {
    if (!job.finish()) wrong_.push_back(job.name());
    times_.emplace_back(job.milliseconds(), job.name());
  }
  const std::vector<std::string>& wrong() const { return wrong_; }

 private:
  std::vector<std::string> wrong_;
  std::vector<std::pair<double, std::string>> times_;
};

}  // namespace rondo::tests
