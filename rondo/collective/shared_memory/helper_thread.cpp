#include "rondo/collective/shared_memory/helper_thread.h"

#include <pthread.h>
#include <unistd.h>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <vector>

#include "rondo/base/blocked_signals.h"
#include "rondo/base/log.h"
#include "rondo/base/replica.h"
#include "rondo/channel/waiting.h"

namespace rondo::shared_memory {
namespace {

// Time that the end of a process waits for a thread in a callback.
constexpr auto kExitPatience = std::chrono::seconds(1);
// Time that an engine's destructor waits for a thread that is away, so that ended operations are announced
// before it returns, unless the announcement waits for that very destruction.
constexpr auto kAwayPatience = std::chrono::seconds(1);

// The list of all helper threads of a process, because exit() does not know the engines.
struct Helpers {
  explicit Helpers(Helpers* parents) : parents(parents) {}
  Helpers* const parents;  // kept reachable, not used
  const pid_t process = getpid();
  std::mutex mutex;  // protects the fields below
  std::vector<std::weak_ptr<HelperThread::Control>> running;
  bool exiting = false;
};

// Never destroyed: threads may be started during the destruction of static objects. A forked child, which has
// none of its parent's threads and may find the parent's list locked, starts a list of its own.
Helpers& helpers() {
  static std::atomic<Helpers*> instance{nullptr};
  Helpers* now = instance.load();
  if (now != nullptr && now->process == getpid()) return *now;
  auto* const made = new Helpers(now);
  if (!instance.compare_exchange_strong(now, made)) {
    delete made;  // another thread created the list first
    return *instance.load();
  }
  // Registered after libraries have initialised, so it runs before their teardown; a child inherits it.
  if (now == nullptr) std::atexit(&stop_helper_threads);
  return *made;
}

}  // namespace

void HelperThread::Control::sleep(std::uint32_t word, Duration limit) {
  if (!stopped()) futex_wait(word_, word, limit);
}

void HelperThread::Control::wake() {
  word_.fetch_add(1);
  futex_wake_all(word_);
}

void HelperThread::Control::stop() {
  stopped_.store(true);
  wake();
}

void HelperThread::Control::wait_for_end(const Deadline& deadline) {
  while (!ended_.load() && !deadline.passed()) {
    const std::uint32_t seen = word();
    if (!ended_.load()) futex_wait(word_, seen, std::chrono::milliseconds(5));
  }
}

bool HelperThread::Control::return_to_engine() {
  Place expected = Place::away;
  const bool there = place_.compare_exchange_strong(expected, Place::engine);
  // The engine's destructor may already wait for a returning thread.
  return there && !stopped();
}

void HelperThread::Control::wait_until_gone() {
  const Deadline deadline = Deadline::after(kAwayPatience);
  while (!ended_.load()) {
    Place expected = Place::away;
    if (deadline.passed() && place_.compare_exchange_strong(expected, Place::gone)) return;
    const std::uint32_t seen = word();
    if (!ended_.load()) futex_wait(word_, seen, std::chrono::milliseconds(5));
  }
}

std::unique_ptr<HelperThread> HelperThread::start(Body body) {
  Helpers& all = helpers();
  const std::lock_guard lock(all.mutex);
  if (all.exiting) return nullptr;
  auto control = std::make_shared<Control>();
  std::thread::id id;
  try {
    const BlockedSignals blocked;
    std::thread thread = replica_thread([control, body = std::move(body)]() mutable {
      pthread_setname_np(pthread_self(), "rondo-helper");
      body(*control);
      body = nullptr;
      control->ended_.store(true);
      futex_wake_all(control->word_);
    });
    id = thread.get_id();
    thread.detach();
  } catch (const std::system_error& e) {
    log::warning("operations progress only during calls of their ranks, because no thread could be started: ",
                 e.what());
    return nullptr;
  }
  std::erase_if(all.running, [](const auto& other) { return other.expired(); });
  all.running.push_back(control);
  return std::unique_ptr<HelperThread>(new HelperThread(id, std::move(control)));
}

HelperThread::HelperThread(std::thread::id thread, std::shared_ptr<Control> control)
    : thread_(thread), control_(std::move(control)), process_(getpid()) {}

HelperThread::~HelperThread() {
  if (process_ != getpid()) return;
  control_->stop();
  if (thread_ != std::this_thread::get_id()) control_->wait_until_gone();
}

void stop_helper_threads() {
  Helpers& all = helpers();
  std::vector<std::shared_ptr<HelperThread::Control>> running;
  {
    const std::lock_guard lock(all.mutex);
    all.exiting = true;
    for (const auto& one : all.running) {
      if (auto control = one.lock()) running.push_back(std::move(control));
    }
  }
  for (const auto& control : running) control->stop();
  const Deadline deadline = Deadline::after(kExitPatience);
  for (const auto& control : running) control->wait_for_end(deadline);
}

void HelperTeam::call() {
  if (on_duty_ == nullptr && !idle_.empty()) {
    on_duty_ = idle_.back();
    idle_.pop_back();
  }
  if (on_duty_ != nullptr) {
    on_duty_->wake();
    return;
  }
  std::unique_ptr<HelperThread> thread = HelperThread::start(body_);
  if (thread == nullptr) return;
  on_duty_ = &thread->control();
  threads_.push_back(std::move(thread));
}

bool HelperTeam::return_to_duty(std::unique_lock<std::mutex>& lock, HelperThread::Control& control) {
  // The function that the thread ran may have destroyed the engine.
  if (!control.return_to_engine()) return false;
  lock.lock();
  if (on_duty_ == nullptr) {
    on_duty_ = &control;
    return true;
  }
  idle_.push_back(&control);
  while (on_duty_ != &control) {
    const std::uint32_t word = control.word();
    lock.unlock();
    control.sleep(word, Duration::max());
    if (control.stopped()) return false;
    lock.lock();
  }
  return true;
}

void HelperTeam::stop() {
  for (const auto& thread : threads_) thread->stop();
}

void HelperTeam::end() {
  stop();
  threads_.clear();
}

}  // namespace rondo::shared_memory
