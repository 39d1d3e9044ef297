#include "rondo/channel/shared_store.h"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/futex.h"
#include "rondo/channel/shared_memory.h"

namespace rondo {
namespace {

constexpr std::uint64_t kMagic = 0x31524f54534f4452;  // "RDOSTOR1"

// Start of the file; entries follow back to back. An entry becomes visible when `used` moves past it, so a
// process that dies while writing one leaves nothing half-written behind.
struct Header {
  std::uint64_t magic;
  pthread_mutex_t mutex;               // robust, shared between processes; protects everything below
  std::uint64_t used;                  // bytes of entries
  std::uint64_t live;                  // entries that are not removed
  std::atomic<std::uint32_t> version;  // futex: changes with every set
};

// `room` bytes are kept for the value, so that a counter can be rewritten in place.
struct Entry {
  std::uint32_t key_bytes;
  std::uint32_t value_bytes;
  std::uint32_t room;
  std::uint32_t removed;
  char* key() { return reinterpret_cast<char*>(this + 1); }
  char* value() { return key() + key_bytes; }
  std::size_t total() const { return (sizeof(Entry) + key_bytes + room + 7) / 8 * 8; }
};

constexpr std::size_t kEntriesBegin = (sizeof(Header) + 63) / 64 * 64;
constexpr std::uint32_t kLeastRoom = 24;  // any 64-bit counter

}  // namespace

struct SharedStore::Impl {
  explicit Impl(SharedMemory mapped) : memory(std::move(mapped)) {}

  SharedMemory memory;

  Header& header() const { return *reinterpret_cast<Header*>(memory.data()); }

  // Locks the store's mutex for the life of the guard; a holder that died is replaced.
  class Lock {
   public:
    explicit Lock(Header& header) : header_(header) {
      const int result = pthread_mutex_lock(&header_.mutex);
      if (result == EOWNERDEAD) pthread_mutex_consistent(&header_.mutex);
      if (result != 0 && result != EOWNERDEAD) throw Error(str("shared store: ", errno_text(result)));
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() { pthread_mutex_unlock(&header_.mutex); }

   private:
    Header& header_;
  };

  Entry* find(std::string_view key) const {
    const Header& h = header();
    for (std::size_t at = 0; at < h.used;) {
      auto* entry = reinterpret_cast<Entry*>(memory.data() + kEntriesBegin + at);
      if (entry->removed == 0 && std::string_view(entry->key(), entry->key_bytes) == key) return entry;
      at += entry->total();
    }
    return nullptr;
  }

  void put(std::string_view key, std::string_view value) const {
    Header& h = header();
    Entry* old = find(key);
    if (old != nullptr && value.size() <= old->room) {
      std::memcpy(old->value(), value.data(), value.size());
      old->value_bytes = static_cast<std::uint32_t>(value.size());
    } else {
      Entry entry{static_cast<std::uint32_t>(key.size()), static_cast<std::uint32_t>(value.size()),
                  std::max(static_cast<std::uint32_t>(value.size()), kLeastRoom), 0};
      if (kEntriesBegin + h.used + entry.total() > memory.size()) {
        throw Error(str("the job's store is full (", to_string(Bytes{memory.size()}), "); key '", key,
                        "' of ", value.size(), " bytes does not fit"));
      }
      auto* made = new (memory.data() + kEntriesBegin + h.used) Entry(entry);
      std::memcpy(made->key(), key.data(), key.size());
      std::memcpy(made->value(), value.data(), value.size());
      if (old != nullptr) old->removed = 1;
      h.live += old == nullptr ? 1 : 0;
      h.used += entry.total();
    }
    h.version.fetch_add(1, std::memory_order_release);
    futex_wake_all(h.version);
  }
};

SharedStore::SharedStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SharedStore::~SharedStore() = default;

std::unique_ptr<SharedStore> SharedStore::create(std::size_t capacity_bytes) {
  auto impl =
      std::make_unique<Impl>(SharedMemory::create("rondo-store", Bytes{capacity_bytes + kEntriesBegin}));
  Header& header = *new (impl->memory.data()) Header{};
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&header.mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  header.magic = kMagic;
  return std::unique_ptr<SharedStore>(new SharedStore(std::move(impl)));
}

std::unique_ptr<SharedStore> SharedStore::open(int descriptor) {
  auto impl = std::make_unique<Impl>(SharedMemory::adopt(descriptor));
  if (impl->memory.size() < kEntriesBegin || impl->header().magic != kMagic) {
    throw Error(str("descriptor ", descriptor, " is not a rondo store"));
  }
  return std::unique_ptr<SharedStore>(new SharedStore(std::move(impl)));
}

int SharedStore::descriptor() const { return impl_->memory.descriptor(); }

void SharedStore::set(std::string_view key, std::string_view value) {
  const Impl::Lock lock(impl_->header());
  impl_->put(key, value);
}

std::optional<std::string> SharedStore::try_get(std::string_view key) {
  const Impl::Lock lock(impl_->header());
  Entry* entry = impl_->find(key);
  if (entry == nullptr) return std::nullopt;
  return std::string(entry->value(), entry->value_bytes);
}

std::string SharedStore::get(std::string_view key, const Wait& wait) {
  constexpr auto cancel_check_interval = std::chrono::milliseconds(20);
  while (true) {
    // Read before looking, so that a set in between makes the futex return at once.
    const std::uint32_t version = impl_->header().version.load(std::memory_order_acquire);
    if (auto value = try_get(key)) return *value;
    if (wait.cancel != nullptr && wait.cancel->cancelled()) {
      throw CancelledError(str("waiting for key '", key, "' was cancelled"));
    }
    if (wait.deadline.passed()) throw TimeoutError(str("nobody set the key '", key, "' in time"), {});
    futex_wait(impl_->header().version, version,
               std::min<Duration>(cancel_check_interval, wait.deadline.remaining()));
  }
}

long long SharedStore::add(std::string_view key, long long delta) {
  const Impl::Lock lock(impl_->header());
  Entry* entry = impl_->find(key);
  long long sum = delta;
  if (entry != nullptr) {
    sum += parse_integer({entry->value(), entry->value_bytes}, str("store key '", key, "'"));
  }
  impl_->put(key, std::to_string(sum));
  return sum;
}

std::string SharedStore::compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired) {
  const Impl::Lock lock(impl_->header());
  Entry* entry = impl_->find(key);
  if (entry == nullptr) {
    if (!expected.empty()) return std::string(expected);
    impl_->put(key, desired);
    return std::string(desired);
  }
  std::string current(entry->value(), entry->value_bytes);
  if (current != expected) return current;
  impl_->put(key, desired);
  return std::string(desired);
}

bool SharedStore::remove(std::string_view key) {
  const Impl::Lock lock(impl_->header());
  Entry* entry = impl_->find(key);
  if (entry == nullptr) return false;
  entry->removed = 1;
  --impl_->header().live;
  return true;
}

long long SharedStore::size() {
  const Impl::Lock lock(impl_->header());
  return static_cast<long long>(impl_->header().live);
}

}  // namespace rondo
