#include "rondo/backend/engine/store_adapter.h"

#include "rondo/backend/engine/engine_reason.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

std::string_view as_text(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::uint8_t> as_bytes(std::string_view text) { return {text.begin(), text.end()}; }

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
      throw TimeoutError(str("nobody set the key '", key, "' in time: ", engine_reason(e)), {});
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

}  // namespace rondo
