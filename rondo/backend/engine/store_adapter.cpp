#include "rondo/backend/engine/store_adapter.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <condition_variable>
#include <optional>
#include <thread>

#include "rondo/backend/engine/failure_record.h"
#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

std::string_view as_text(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::uint8_t> as_bytes(std::string_view text) { return {text.begin(), text.end()}; }

// Interval at which a wait checks over_key.
constexpr auto kStoreWaitPart = std::chrono::milliseconds(500);
// Time that a live store gets to answer after the end of a wait.
constexpr auto kStoreAnswerTime = std::chrono::seconds(5);
// Longest text of another process in a message, in bytes.
constexpr std::size_t kLongestReason = 1000;

// State that an abandoned call shares with the thread that waited for it.
struct BoundedCall {
  std::mutex mutex;  // protects the fields below
  std::condition_variable changed;
  bool ended = false;
  std::exception_ptr error;
};

[[noreturn]] void throw_named(const std::exception_ptr& error, const std::string& keeper) {
  try {
    std::rethrow_exception(error);
  } catch (const Error&) {
    throw;
  } catch (const c10::DistNetworkError&) {
    throw PeerLostError(str("the connection to ", keeper,
                            " is lost: its process or its host has ended, or it has given up. Its own output "
                            "says why."),
                        {0});
  } catch (const std::exception& e) {
    throw Error(str(keeper, ": ", engine_reason(e)));
  }
}

// A result that an abandoned call may still write.
template <class Result>
struct SharedResult {
  std::optional<Result> value;
};

std::chrono::milliseconds to_milliseconds(Duration duration) {
  return std::max(std::chrono::ceil<std::chrono::milliseconds>(duration), std::chrono::milliseconds(1));
}

}  // namespace

c10::intrusive_ptr<c10d::Store> StoreForC10d::clone() { return c10::make_intrusive<StoreForC10d>(store_); }

void StoreForC10d::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  store_->set(key, as_text(value));
}

std::vector<std::uint8_t> StoreForC10d::compareSet(const std::string& key,
                                                   const std::vector<std::uint8_t>& expected,
                                                   const std::vector<std::uint8_t>& desired) {
  return as_bytes(store_->compare_set(key, as_text(expected), as_text(desired)));
}

std::vector<std::uint8_t> StoreForC10d::get(const std::string& key) {
  return as_bytes(store_->get(key, {Deadline::after(getTimeout()), nullptr}));
}

std::int64_t StoreForC10d::add(const std::string& key, std::int64_t value) { return store_->add(key, value); }

bool StoreForC10d::deleteKey(const std::string& key) { return store_->remove(key); }

bool StoreForC10d::check(const std::vector<std::string>& keys) {
  return std::all_of(keys.begin(), keys.end(),
                     [this](const auto& key) { return store_->try_get(key).has_value(); });
}

std::int64_t StoreForC10d::getNumKeys() { return store_->size(); }

void StoreForC10d::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void StoreForC10d::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const Deadline deadline = timeout == kNoTimeout ? Deadline::never() : Deadline::after(timeout);
  for (const std::string& key : keys) store_->get(key, {deadline, nullptr});
}

void StoreFromC10d::set(std::string_view key, std::string_view value) {
  store_->set(std::string(key), as_bytes(value));
}

std::string StoreFromC10d::get(std::string_view key, const Wait& wait) {
  const std::string name(key);
  if (!wait.deadline.is_never()) {
    const auto remaining = std::chrono::duration_cast<std::chrono::milliseconds>(wait.deadline.remaining());
    try {
      store_->wait({name}, std::max(remaining, std::chrono::milliseconds(1)));
    } catch (const CommunicationError&) {
      throw;
    } catch (const std::exception& e) {
      throw TimeoutError(str("no process set the key '", key, "' in time: ", engine_reason(e)), {});
    }
  }
  return std::string(as_text(store_->get(name)));
}

std::optional<std::string> StoreFromC10d::try_get(std::string_view key) {
  const std::string name(key);
  if (!store_->check({name})) return std::nullopt;
  return std::string(as_text(store_->get(name)));
}

long long StoreFromC10d::add(std::string_view key, long long delta) {
  return store_->add(std::string(key), delta);
}

std::string StoreFromC10d::compare_set(std::string_view key, std::string_view expected,
                                       std::string_view desired) {
  return std::string(as_text(store_->compareSet(std::string(key), as_bytes(expected), as_bytes(desired))));
}

bool StoreFromC10d::remove(std::string_view key) { return store_->deleteKey(std::string(key)); }

long long StoreFromC10d::size() { return store_->getNumKeys(); }

void run_bounded(std::function<void()> call, Duration limit, const std::string& keeper,
                 const std::function<void()>& each_second) {
  const auto shared = std::make_shared<BoundedCall>();
  std::thread thread([shared, call = std::move(call)]() mutable {
    std::exception_ptr error;
    try {
      const QuietLog quiet;
      call();
    } catch (...) {
      error = std::current_exception();
    }
    call = nullptr;
    const std::lock_guard lock(shared->mutex);
    shared->error = error;
    shared->ended = true;
    shared->changed.notify_all();
  });
  bool ended = false;
  {
    std::unique_lock lock(shared->mutex);
    const Deadline deadline = Deadline::after(bounded_duration(limit));
    while (!ended && !deadline.passed()) {
      const TimePoint next = each_second
                                 ? std::min<TimePoint>(Clock::now() + std::chrono::seconds(1), deadline.at())
                                 : deadline.at();
      ended = shared->changed.wait_until(lock, next, [&] { return shared->ended; });
      if (!ended && each_second) each_second();
    }
  }
  if (!ended) {
    thread.detach();
    throw TimeoutError(str(keeper, " did not answer within ", to_string(limit),
                           ": its process is stopped, or its host is cut off"),
                       {0});
  }
  thread.join();
  if (shared->error) throw_named(shared->error, keeper);
}

BoundedStore::BoundedStore(c10::intrusive_ptr<c10d::Store> store, Options options)
    : c10d::Store(to_milliseconds(options.timeout)), store_(std::move(store)), options_(std::move(options)) {}

void BoundedStore::throw_if_broken() const {
  const std::lock_guard lock(mutex_);
  if (broken_) std::rethrow_exception(broken_);
}

void BoundedStore::throw_broken() const {
  const auto said = ask<std::vector<std::uint8_t>>(
      [key = options_.over_key](c10d::Store& store) { return store.get(key); }, kStoreAnswerTime);
  const std::string_view text(reinterpret_cast<const char*>(said.data()), said.size());
  throw JobOverError(str(options_.over_text, printable(text, kLongestReason)), {});
}

// `call` must own the values that it uses: it may be abandoned.
template <class Result>
Result BoundedStore::ask(std::function<Result(c10d::Store&)> call, Duration limit) const {
  throw_if_broken();
  const auto result = std::make_shared<SharedResult<Result>>();
  try {
    run_bounded([store = store_, call = std::move(call), result] { result->value = call(*store); }, limit,
                options_.keeper);
  } catch (const TimeoutError&) {
    const std::lock_guard lock(mutex_);
    broken_ = std::current_exception();
    throw;
  }
  return std::move(*result->value);
}

c10::intrusive_ptr<c10d::Store> BoundedStore::clone() {
  auto copy = ask<c10::intrusive_ptr<c10d::Store>>([](c10d::Store& store) { return store.clone(); });
  return c10::make_intrusive<BoundedStore>(std::move(copy), options_);
}

void BoundedStore::set(const std::string& key, const std::vector<std::uint8_t>& value) {
  ask<bool>([key, value](c10d::Store& store) {
    store.set(key, value);
    return true;
  });
}

std::vector<std::uint8_t> BoundedStore::compareSet(const std::string& key,
                                                   const std::vector<std::uint8_t>& expected,
                                                   const std::vector<std::uint8_t>& desired) {
  return ask<std::vector<std::uint8_t>>(
      [key, expected, desired](c10d::Store& store) { return store.compareSet(key, expected, desired); });
}

std::vector<std::uint8_t> BoundedStore::get(const std::string& key) {
  wait({key});
  return ask<std::vector<std::uint8_t>>([key](c10d::Store& store) { return store.get(key); });
}

std::int64_t BoundedStore::add(const std::string& key, std::int64_t value) {
  return ask<std::int64_t>([key, value](c10d::Store& store) { return store.add(key, value); });
}

bool BoundedStore::deleteKey(const std::string& key) {
  return ask<bool>([key](c10d::Store& store) { return store.deleteKey(key); });
}

bool BoundedStore::check(const std::vector<std::string>& keys) {
  return ask<bool>([keys](c10d::Store& store) { return store.check(keys); });
}

std::int64_t BoundedStore::getNumKeys() {
  return ask<std::int64_t>([](c10d::Store& store) { return store.getNumKeys(); });
}

void BoundedStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

// Waits in parts, so that other threads' calls run in between.
void BoundedStore::wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) {
  const Deadline deadline = timeout == kNoTimeout ? Deadline::never() : Deadline::after(timeout);
  while (true) {
    const Duration part = deadline.is_never() ? Duration(kStoreWaitPart)
                                              : std::min<Duration>(kStoreWaitPart, deadline.remaining());
    const auto wait_for = [keys, part, over = options_.over_key](c10d::Store& store) {
      try {
        store.wait(keys, to_milliseconds(part));
        return true;
      } catch (const c10::DistNetworkError&) {
        throw;
      } catch (const std::exception&) {
        return false;
      }
    };
    if (ask<bool>(wait_for, deadline.is_never() ? Duration::max() : deadline.remaining() + kStoreAnswerTime))
      return;
    if (!options_.over_key.empty() && check({options_.over_key})) throw_broken();
    if (deadline.passed()) {
      throw TimeoutError(str("no process set the key ", join(keys, ", "), " in the store of ",
                             options_.keeper, " within ", to_string(Duration(timeout))),
                         {});
    }
  }
}

void BoundedStore::append(const std::string& key, const std::vector<std::uint8_t>& value) {
  ask<bool>([key, value](c10d::Store& store) {
    store.append(key, value);
    return true;
  });
}

std::vector<std::vector<std::uint8_t>> BoundedStore::multiGet(const std::vector<std::string>& keys) {
  wait(keys);
  return ask<std::vector<std::vector<std::uint8_t>>>(
      [keys](c10d::Store& store) { return store.multiGet(keys); });
}

void BoundedStore::multiSet(const std::vector<std::string>& keys,
                            const std::vector<std::vector<std::uint8_t>>& values) {
  ask<bool>([keys, values](c10d::Store& store) {
    store.multiSet(keys, values);
    return true;
  });
}

bool BoundedStore::hasExtendedApi() const { return store_->hasExtendedApi(); }

}  // namespace rondo
