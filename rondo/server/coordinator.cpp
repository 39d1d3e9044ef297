#include "rondo/server/coordinator.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"
#include "rondo/channel/shared_memory.h"
#include "rondo/channel/waiting.h"
#include "rondo/control/connection.h"
#include "rondo/control/message.h"
#include "rondo/control/secret.h"
#include "rondo/server/protocol.h"

namespace rondo::server {
namespace {

constexpr auto kLookAtWorkers = std::chrono::milliseconds(20);
constexpr auto kIdle = std::chrono::milliseconds(1);
constexpr std::size_t kLongestText = std::size_t{64} << 20;
constexpr const char* kSecretOrigin = "the coordinator's secret";
constexpr std::uint32_t kCoordinatorProtocol = 0x72636f31;

// The coordinator's instruction to a worker.
enum class Order : std::uint32_t { call, wait, end };

}  // namespace

struct RemoteValue::State {
  mutable std::mutex mutex;  // protects all members
  mutable std::condition_variable changed;
  bool ready = false;
  std::string value;
  std::exception_ptr error;

  void finish(std::string result, std::exception_ptr failure) {
    {
      const std::lock_guard lock(mutex);
      if (ready) return;  // the first result of a function that ran twice counts
      ready = true;
      value = std::move(result);
      error = std::move(failure);
    }
    changed.notify_all();
  }
};

std::string RemoteValue::fetch(const Deadline& deadline) const {
  std::unique_lock lock(state_->mutex);
  const auto ready = [&] { return state_->ready; };
  if (deadline.is_never()) {
    state_->changed.wait(lock, ready);
  } else if (!state_->changed.wait_until(lock, deadline.at(), ready)) {
    throw TimeoutError("a scheduled function did not finish in time", {});
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return state_->value;
}

bool RemoteValue::is_ready() const {
  const std::lock_guard lock(state_->mutex);
  return state_->ready;
}

struct Coordinator::State {
  struct Call {
    std::uint64_t number = 0;
    std::string function;
    std::string arguments;
    std::shared_ptr<RemoteValue::State> value;
    std::vector<std::string> given_to = {};  // incarnations of the workers that received the call
  };
  struct Worker {
    std::optional<Call> call;
    std::unique_ptr<PeerWatch> watch;
    TimePoint heard{};
    std::string incarnation;
  };

  State(const control::JobSecret& secret, const CoordinatorOptions& given)
      : options(given), listener(given.address, secret) {}

  CoordinatorOptions options;
  control::Listener listener;
  mutable std::mutex mutex;  // protects the members below
  std::condition_variable changed;
  std::deque<Call> queue;
  std::map<std::uint32_t, Worker> workers;
  std::exception_ptr error;  // thrown once
  std::uint64_t scheduled = 0, lost = 0;
  bool ending = false;
  std::jthread thread;  // serves requests

  bool idle() const {
    for (const auto& [number, worker] : workers) {
      if (worker.call) return false;
    }
    return queue.empty();
  }
  void throw_error() {
    if (error) std::rethrow_exception(std::exchange(error, nullptr));
  }
  void fail(std::exception_ptr failure) {
    const auto cancelled =
        std::make_exception_ptr(CancelledError("cancelled: another scheduled function failed"));
    for (Call& call : queue) call.value->finish({}, cancelled);
    queue.clear();
    for (auto& [number, worker] : workers) {
      if (worker.call) worker.call->value->finish({}, cancelled);
      worker.call.reset();
    }
    error = std::move(failure);
  }
  std::optional<Call> take_back(std::uint64_t number, const std::string& incarnation);
  std::string answer(const control::Request& request);
  void look_for_losses();
  void lose(std::uint32_t number, Worker& worker);
  void serve(const std::stop_token& stop);
};

void Coordinator::State::lose(std::uint32_t number, Worker& worker) {
  ++lost;
  log::warning("worker ", number, " of the coordinator is lost",
               worker.call ? "; its function is rescheduled" : "");
  if (worker.call) queue.push_front(std::move(*worker.call));
  worker.call.reset();
}

// Removes and returns a call that was given to a worker before it was declared lost, from the queue or from
// its new worker.
std::optional<Coordinator::State::Call> Coordinator::State::take_back(std::uint64_t number,
                                                                      const std::string& incarnation) {
  const auto is_meant = [&](const Call& call) {
    return call.number == number &&
           std::find(call.given_to.begin(), call.given_to.end(), incarnation) != call.given_to.end();
  };
  if (const auto waits = std::find_if(queue.begin(), queue.end(), is_meant); waits != queue.end()) {
    Call call = std::move(*waits);
    queue.erase(waits);
    return call;
  }
  for (auto& [other, worker] : workers) {
    if (worker.call && is_meant(*worker.call)) return std::exchange(worker.call, std::nullopt);
  }
  return std::nullopt;
}

void Coordinator::State::look_for_losses() {
  const std::lock_guard lock(mutex);
  for (auto found = workers.begin(); found != workers.end();) {
    Worker& worker = found->second;
    const bool ended = worker.watch != nullptr && !worker.watch->ended().empty();
    const bool silent = worker.watch == nullptr && Clock::now() - worker.heard > options.silence;
    if (!ended && !silent) {
      ++found;
      continue;
    }
    lose(found->first, worker);
    found = workers.erase(found);
  }
  if (!idle() && !error && options.workers_have_ended && options.workers_have_ended()) {
    fail(std::make_exception_ptr(
        Error("no worker is left for the scheduled functions: all have ended; their own messages say why")));
    changed.notify_all();
  }
}

// Handles a worker's message: its identity and the result of its last call. Returns the next instruction.
std::string Coordinator::State::answer(const control::Request& request) {
  control::MessageReader reader(request.body, "a worker");
  if (reader.number<std::uint32_t>("protocol") != kCoordinatorProtocol)
    throw DataError("a message that is not from a coordinator's worker");
  const auto number = reader.number<std::uint32_t>("worker", 0, 1'000'000);
  const std::string incarnation(reader.text("incarnation", 64));
  const auto process = reader.number<std::int64_t>("process");
  const std::string host(reader.text("host", 256));
  const auto finished = reader.number<std::uint64_t>("finished call");
  const bool failed = reader.number<std::uint32_t>("failed", 0, 1) != 0;
  const std::string result(reader.text("result", kLongestText));
  reader.end();

  const std::lock_guard lock(mutex);
  Worker& worker = workers[number];
  if (worker.incarnation != incarnation) {
    if (!worker.incarnation.empty()) lose(number, worker);
    worker.incarnation = incarnation;
    worker.watch.reset();
    if (host == host_identity()) {
      worker.watch = std::make_unique<PeerWatch>();
      worker.watch->add(0, static_cast<pid_t>(process));
    }
  }
  worker.heard = Clock::now();
  // A worker is silent during a long function. Its result counts although the worker was declared lost.
  if (!worker.call) worker.call = take_back(finished, incarnation);
  if (worker.call && worker.call->number == finished) {
    if (failed) {
      const auto error =
          std::make_exception_ptr(Error(str("worker ", number, ": ", worker.call->function, ": ", result)));
      worker.call->value->finish({}, error);
      worker.call.reset();
      fail(error);
    } else {
      worker.call->value->finish(result, nullptr);
      worker.call.reset();
    }
  }
  // A repeated request gets the same call again.
  if (!worker.call && !queue.empty()) {
    worker.call = std::move(queue.front());
    worker.call->given_to.push_back(incarnation);
    queue.pop_front();
  }
  changed.notify_all();
  control::MessageWriter writer;
  if (!worker.call) {
    if (ending) workers.erase(number);
    return writer.number(static_cast<std::uint32_t>(ending ? Order::end : Order::wait)).take();
  }
  return writer.number(static_cast<std::uint32_t>(Order::call))
      .number(worker.call->number)
      .text(worker.call->function)
      .text(worker.call->arguments)
      .take();
}

void Coordinator::State::serve(const std::stop_token& stop) {
  Deadline look = Deadline::after(kLookAtWorkers);
  // Before exiting, keeps answering workers with the instruction to end: briefly for workers that have not
  // connected yet, longer for connected ones.
  Deadline moment = Deadline::never(), last = Deadline::never();
  const auto all_told = [&] {
    const std::lock_guard lock(mutex);
    return workers.empty();
  };
  while (!moment.passed() || (!all_told() && !last.passed())) {
    if (stop.stop_requested() && moment.is_never()) {
      moment = Deadline::after(10 * kLookAtWorkers);
      last = Deadline::after(options.silence);
    }
    if (const auto request = listener.receive(kLookAtWorkers)) {
      try {
        listener.answer(*request, answer(*request));
      } catch (const DataError& error) {
        log::warning("the coordinator: ", error.what());
      }
    }
    if (!look.passed()) continue;
    look_for_losses();
    look = Deadline::after(kLookAtWorkers);
  }
}

Coordinator::Coordinator(const std::string& secret, const CoordinatorOptions& options)
    : state_(std::make_unique<State>(control::JobSecret::parse(secret, kSecretOrigin), options)) {
  state_->thread = std::jthread([state = state_.get()](const std::stop_token& stop) { state->serve(stop); });
}

Coordinator::~Coordinator() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->fail(nullptr);
    state_->ending = true;
  }
  state_->thread.request_stop();
  state_->thread.join();
}

const std::string& Coordinator::address() const { return state_->listener.address(); }

RemoteValue Coordinator::schedule(const std::string& function, std::string arguments) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.error || state.queue.size() < state.options.longest_queue; });
  state.throw_error();
  auto value = std::make_shared<RemoteValue::State>();
  state.queue.push_back({++state.scheduled, function, std::move(arguments), value});
  return RemoteValue(value);
}

void Coordinator::join() {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.changed.wait(lock, [&] { return state.error || state.idle(); });
  state.throw_error();
}

bool Coordinator::done() const {
  const std::lock_guard lock(state_->mutex);
  return state_->error || state_->idle();
}

std::uint64_t Coordinator::lost_workers() const {
  const std::lock_guard lock(state_->mutex);
  return state_->lost;
}

void work_for_coordinator(const std::string& address, const std::string& secret, int worker,
                          const RemoteFunctions& functions, Duration timeout) {
  control::Connection connection(address, control::JobSecret::parse(secret, kSecretOrigin),
                                 str("worker ", worker), "the coordinator");
  const std::string incarnation = std::to_string(random_nonce());
  std::uint64_t finished = 0;
  bool failed = false;
  std::string result;
  while (true) {
    control::MessageWriter writer;
    writer.number(kCoordinatorProtocol)
        .number(static_cast<std::uint32_t>(worker))
        .text(incarnation)
        .number(static_cast<std::int64_t>(getpid()))
        .text(host_identity())
        .number(finished)
        .number(static_cast<std::uint32_t>(failed))
        .text(result);
    const std::string answer = connection.ask(writer.take(), Deadline::after(timeout));
    control::MessageReader reader(answer, "the coordinator");
    const auto order =
        static_cast<Order>(reader.number<std::uint32_t>("order", 0, static_cast<std::uint32_t>(Order::end)));
    if (order == Order::end) return;
    if (order == Order::wait) {
      std::this_thread::sleep_for(kIdle);
      continue;
    }
    finished = reader.number<std::uint64_t>("call");
    const std::string name(reader.text("function", kLongestText));
    const std::string arguments(reader.text("arguments", kLongestText));
    reader.end();
    failed = false;
    try {
      const auto function = functions.find(name);
      if (function == functions.end()) throw UsageError(str("this worker has no function named ", name));
      result = function->second(arguments);
    } catch (const std::exception& error) {
      failed = true;
      result = error.what();
    }
  }
}

}  // namespace rondo::server
