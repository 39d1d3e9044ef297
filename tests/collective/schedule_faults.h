#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/channel/channel.h"
#include "rondo/collective/algorithms/registry.h"
#include "rondo/collective/executor.h"
#include "tests/collective/faulty_job.h"

// Schedules in which a rank is killed, leaves or stops at a chosen exchange: for tests over any channel.
namespace rondo::collective {

inline constexpr int kFaultWorld = 4;
// A timeout so long that a survivor which reaches it has not noticed the fault.
inline constexpr auto kNever = std::chrono::minutes(1);

using tests::all_faults;

enum class Moment { before, within };

// A channel that calls `fault` before a rank's `when`-th exchange, counted from 0, or within it, when the
// first piece has arrived.
class FaultyChannel final : public Channel {
 public:
  FaultyChannel(Channel& channel, int when, Moment moment, std::function<void()> fault)
      : channel_(channel), left_(when), moment_(moment), fault_(std::move(fault)) {}
  int rank() const override { return channel_.rank(); }
  int size() const override { return channel_.size(); }
  void exchange(std::span<const Outgoing> outgoing, std::span<const Incoming> incoming,
                const Wait& wait) override {
    if (left_-- != 0) return channel_.exchange(outgoing, incoming, wait);
    if (incoming.empty() || moment_ == Moment::before) fault_();
    std::vector<Incoming> wrapped(incoming.begin(), incoming.end());
    for (Incoming& message : wrapped) {
      message.take = [this](auto, auto) { fault_(); };
    }
    channel_.exchange(outgoing, wrapped, wait);
  }

 private:
  Channel& channel_;
  int left_;
  Moment moment_;
  std::function<void()> fault_;
};

struct FaultCase {
  std::string algorithm;
  OperationKind operation;
  int victim;
  int when;  // the exchange of the victim, counted from 0
};

inline std::string text(const FaultCase& what) {
  return str(what.algorithm, " ", rondo::name(what.operation), ", rank ", what.victim, ", exchange ",
             what.when);
}

inline ScheduleRequest request_of(const FaultCase& what, int rank, std::size_t elements) {
  ScheduleRequest request;
  request.operation = what.operation;
  request.rank = rank;
  request.world = kFaultWorld;
  request.bytes = {elements * sizeof(float)};
  request.segment = {elements / 5 * 2 * sizeof(float)};  // three segments
  request.hosts = {0, 1, 0, 1};
  return request;
}

// Returns every exchange of these ranks in every algorithm.
inline std::vector<FaultCase> every_exchange(const std::vector<OperationKind>& operations,
                                             const std::vector<int>& victims) {
  std::vector<FaultCase> cases;
  for (const Algorithm& algorithm : algorithms()) {
    for (const OperationKind operation : operations) {
      if (!algorithm.has(operation)) continue;
      for (const int victim : victims) {
        const Schedule schedule =
            make_schedule(algorithm.name, request_of({algorithm.name, operation, victim, 0}, victim, 40));
        int last = -1;
        int rounds = 0;
        for (const Step& step : schedule.steps) {
          if (step.peer >= 0 && step.round != last) ++rounds;
          last = step.round;
        }
        for (int when = 0; when < rounds; ++when) cases.push_back({algorithm.name, operation, victim, when});
      }
    }
  }
  return cases;
}

// Returns the exchanges of `part` by rank 2, or all exchanges.
inline std::vector<FaultCase> fault_cases(const std::vector<OperationKind>& part) {
  return all_faults() ? every_exchange(scheduled_operations(), {0, 1, 2, 3}) : every_exchange(part, {2});
}

// Repeats one collective, as a training does, until it throws.
inline void run_for_ever(const FaultCase& what, Channel& channel, Duration limit, std::size_t elements) {
  std::vector<std::byte> data(elements * sizeof(float));
  Executor executor(make_schedule(what.algorithm, request_of(what, channel.rank(), elements)), DType::float32,
                    Reduction::sum);
  while (true) executor.run(channel, data, {Deadline::after(limit), nullptr});
}

// Connects in the process of a rank, and calls `use` with its channel.
using Connect = std::function<void(int rank, const std::function<void(Channel&)>& use)>;

// Runs all cases with ranks as processes, `at_once` at a time; returns the failed ones.
template <class Expected>
std::vector<std::string> run_faults(const std::vector<FaultCase>& cases, int signal, Duration limit,
                                    std::size_t at_once, std::size_t elements,
                                    const std::function<Connect()>& make_connect) {
  tests::FaultRecord record;
  for (std::size_t begin = 0; begin < cases.size(); begin += at_once) {
    std::vector<std::unique_ptr<tests::FaultyJob>> jobs;
    for (std::size_t i = begin; i < std::min(cases.size(), begin + at_once); ++i) {
      const FaultCase& what = cases[i];
      jobs.push_back(std::make_unique<tests::FaultyJob>(text(what), kFaultWorld, what.victim, signal));
      const auto body = [&, connect = make_connect(), job = jobs.back().get()](int rank, const auto& strike) {
        connect(rank, [&](Channel& channel) {
          FaultyChannel faulty(channel, rank == what.victim ? what.when : -1, Moment::within, strike);
          try {
            run_for_ever(what, faulty, limit, elements);
          } catch (...) {
            job->note_error();
            throw;
          }
        });
      };
      jobs.back()->start<Expected>(body);
    }
    for (const auto& job : jobs) record.finish(*job);
  }
  return record.wrong();
}

}  // namespace rondo::collective
