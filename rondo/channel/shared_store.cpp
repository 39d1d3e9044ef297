#include "rondo/channel/shared_store.h"

#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <functional>
#include <new>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_memory.h"
#include "rondo/channel/waiting.h"

namespace rondo {
namespace {

constexpr std::uint64_t kMagic = 0x32524f54534f4452;  // "RDOSTOR2"

// Start of the file; entries follow contiguously. One store makes every change visible, after its data: a
// store of `used` for an entry, of `current` for another value of it, or of `removed`. So a process that is
// killed at any point leaves the value before or the value after. Only the holder of the mutex reads: release
// keeps the stores in this order, and the mutex makes them visible to its next holder.
struct Header {
  std::uint64_t magic;
  pthread_mutex_t mutex;               // robust, shared between processes; protects everything below
  std::atomic<std::uint64_t> used;     // bytes of entries
  std::uint64_t live;                  // entries that are not removed; recounted after a holder has died
  std::atomic<std::uint32_t> version;  // futex: changes with every set()
};

// An entry has a value of up to `room` bytes. With two places, the next value is written beside the current
// one, so that a counter never fills the store. A long value that is set once has one place.
struct Entry {
  std::uint32_t key_bytes;
  std::uint32_t room;
  std::uint32_t places;
  std::atomic<std::uint32_t> removed;
  std::atomic<std::uint64_t> current;  // place << 32 | bytes of the value
  char* key() { return reinterpret_cast<char*>(this + 1); }
  char* place(std::uint64_t number) { return key() + key_bytes + number * room; }
  std::string_view value() { return {place(current >> 32U), static_cast<std::uint32_t>(current)}; }
  static std::size_t total(std::size_t key_bytes, std::size_t room, std::size_t places) {
    return (sizeof(Entry) + key_bytes + places * room + 7) / 8 * 8;
  }
  std::size_t total() const { return total(key_bytes, room, places); }
};

constexpr std::size_t kEntriesBegin = (sizeof(Header) + 63) / 64 * 64;
constexpr std::size_t kLeastRoom = 24;  // digits of any 64-bit counter

}  // namespace

struct SharedStore::Impl {
  explicit Impl(SharedMemory mapped) : memory(std::move(mapped)) {}

  SharedMemory memory;
  std::function<void()> at_every_point;

  void point() const {
    if (at_every_point) at_every_point();
  }
  Header& header() const { return *reinterpret_cast<Header*>(memory.data()); }

  // Locks the store's mutex during its lifetime, and recovers it from a holder that died. If a holder dies
  // during the repair, the next one repairs again.
  class Lock {
   public:
    explicit Lock(const Impl& impl) : header_(impl.header()) {
      const int result = pthread_mutex_lock(&header_.mutex);
      if (result == EOWNERDEAD) {
        impl.repair();
        pthread_mutex_consistent(&header_.mutex);
      }
      if (result != 0 && result != EOWNERDEAD) throw Error(str("shared store: ", errno_text(result)));
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock() { pthread_mutex_unlock(&header_.mutex); }

   private:
    Header& header_;
  };

  // Returns the first entry for which `wanted` returns true.
  template <class Wanted>
  Entry* find_entry(const Wanted& wanted) const {
    const std::uint64_t used = header().used.load(std::memory_order_relaxed);
    for (std::size_t at = 0; at < used;) {
      auto* entry = reinterpret_cast<Entry*>(memory.data() + kEntriesBegin + at);
      if (wanted(*entry)) return entry;
      at += entry->total();
    }
    return nullptr;
  }

  Entry* find(std::string_view key) const {
    return find_entry([&](Entry& entry) {
      return entry.removed.load(std::memory_order_relaxed) == 0 &&
             std::string_view(entry.key(), entry.key_bytes) == key;
    });
  }

  // Removes the entry that the newest one replaces, if a kill left both, and recounts.
  void repair() const {
    Entry* newest = nullptr;
    std::uint64_t live = 0;
    find_entry([&](Entry& entry) {
      newest = &entry;
      live += entry.removed == 0 ? 1 : 0;
      return false;
    });
    if (newest != nullptr && newest->removed == 0) {
      Entry* const first = find({newest->key(), newest->key_bytes});
      if (first != newest) {
        first->removed = 1;
        --live;
      }
    }
    header().live = live;
  }

  void put(std::string_view key, std::string_view value) const {
    Header& h = header();
    Entry* old = find(key);
    const std::size_t bytes = value.size();
    if (old != nullptr && old->places == 2 && bytes <= old->room) {
      const std::uint64_t next = 1 - (old->current >> 32U);
      std::memcpy(old->place(next), value.data(), bytes);
      point();
      old->current.store(next << 32U | bytes, std::memory_order_release);
    } else {
      const std::size_t room = std::max(bytes, kLeastRoom);
      const std::uint32_t places = old != nullptr || bytes <= kLeastRoom ? 2 : 1;
      const std::uint64_t used = h.used.load(std::memory_order_relaxed);
      const std::size_t total = Entry::total(key.size(), room, places);
      if (kEntriesBegin + used + total > memory.size()) {
        throw Error(str("the job's store is full (", to_string(Bytes{memory.size()}), "); key '", key,
                        "' of ", value.size(), " bytes does not fit"));
      }
      auto* made = new (memory.data() + kEntriesBegin + used)
          Entry{static_cast<std::uint32_t>(key.size()), static_cast<std::uint32_t>(room), places, 0, bytes};
      std::memcpy(made->key(), key.data(), key.size());
      std::memcpy(made->place(0), value.data(), bytes);
      point();
      h.used.store(used + total, std::memory_order_release);
      point();
      if (old != nullptr) old->removed.store(1, std::memory_order_release);
      point();
      h.live += old == nullptr ? 1 : 0;
    }
    point();
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

void SharedStore::at_every_point(std::function<void()> call) { impl_->at_every_point = std::move(call); }

int SharedStore::descriptor() const { return impl_->memory.descriptor(); }

void SharedStore::set(std::string_view key, std::string_view value) {
  const Impl::Lock lock(*impl_);
  impl_->put(key, value);
}

std::optional<std::string> SharedStore::try_get(std::string_view key) {
  const Impl::Lock lock(*impl_);
  Entry* entry = impl_->find(key);
  if (entry == nullptr) return std::nullopt;
  return std::string(entry->value());
}

std::string SharedStore::get(std::string_view key, const Wait& wait) {
  constexpr auto cancel_check_interval = std::chrono::milliseconds(20);
  while (true) {
    // Read before the lookup, so that a set() in between makes the futex return at once.
    const std::uint32_t version = impl_->header().version.load(std::memory_order_acquire);
    if (auto value = try_get(key)) return *value;
    if (wait.cancel != nullptr && wait.cancel->cancelled()) {
      throw CancelledError(str("waiting for key '", key, "' was cancelled"));
    }
    if (wait.deadline.passed()) throw TimeoutError(str("no process set the key '", key, "' in time"), {});
    futex_wait(impl_->header().version, version,
               std::min<Duration>(cancel_check_interval, wait.deadline.remaining()));
  }
}

long long SharedStore::add(std::string_view key, long long delta) {
  const Impl::Lock lock(*impl_);
  Entry* entry = impl_->find(key);
  long long sum = delta;
  if (entry != nullptr) {
    sum += parse_integer(entry->value(), str("store key '", key, "'"));
  }
  impl_->put(key, std::to_string(sum));
  return sum;
}

std::string SharedStore::compare_set(std::string_view key, std::string_view expected,
                                     std::string_view desired) {
  const Impl::Lock lock(*impl_);
  Entry* entry = impl_->find(key);
  if (entry == nullptr) {
    if (!expected.empty()) return std::string(expected);
    impl_->put(key, desired);
    return std::string(desired);
  }
  std::string current(entry->value());
  if (current != expected) return current;
  impl_->put(key, desired);
  return std::string(desired);
}

bool SharedStore::remove(std::string_view key) {
  const Impl::Lock lock(*impl_);
  Entry* entry = impl_->find(key);
  if (entry == nullptr) return false;
  impl_->point();
  entry->removed.store(1, std::memory_order_release);
  impl_->point();
  --impl_->header().live;
  return true;
}

long long SharedStore::size() {
  const Impl::Lock lock(*impl_);
  return static_cast<long long>(impl_->header().live);
}

}  // namespace rondo
