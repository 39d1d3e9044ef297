#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/memory/scope.h"

namespace rondo {

// Size and label of every block alive, by address: a hash table with open addressing in one array, because a
// training step adds and removes thousands of blocks. One thread at a time.
class BlockTable {
 public:
  // A block in use.
  struct Block {
    std::uint64_t bytes = 0;  // size
    MemoryLabel label;        // what it counts as
  };

  // Empty.
  BlockTable();

  // Returns what was known of the address before: a block that went without remove().
  std::optional<Block> insert(const void* address, const Block& block);
  // Returns what was known; empty for an unknown address.
  std::optional<Block> remove(const void* address);
  // Null for an unknown address. Valid until the next insert or remove.
  Block* find(const void* address);
  std::size_t size() const { return size_; }  // number of blocks

 private:
  struct Slot {
    const void* address = nullptr;  // null is free
    Block block;
  };
  std::size_t home(const void* address) const;
  // The slot of `address`, or the free one where it would go.
  std::size_t place(const void* address) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two of them, at most half in use
  int shift_;                // 64 - log2(slots)
  std::size_t size_ = 0;
};

// Bytes alive at one moment.
struct MemoryUsage {
  // The bytes of one unit of a model.
  struct Unit {
    std::string name = {};            // as given to memory_unit()
    BytesByCategory categories = {};  // its bytes
  };
  std::uint64_t total = 0;          // bytes of all categories
  BytesByCategory categories = {};  // of all units
  std::vector<Unit> units = {};     // those with anything alive, in the order of their numbers

  // Bytes of a category.
  std::uint64_t operator[](MemoryCategory category) const { return bytes_of(categories, category); }
  // Of one unit; all zero for one that has nothing.
  BytesByCategory of_unit(std::string_view name) const;
};

// The largest total so far and when it was reached.
struct MemoryPeak {
  MemoryUsage usage = {};    // at that moment
  std::int64_t step = 0;     // as MemoryMoment of the thread that allocated
  std::string phase = {};    // likewise
  std::string unit = {};     // that was computing
  std::int64_t time_ns = 0;  // monotonic_ns()
};

// Of the time between two calls of MemoryTracker::take_interval.
struct MemoryInterval {
  std::int64_t peak_time_ns = 0;  // monotonic_ns() where the total was largest
  BytesByCategory peak = {};      // at that moment
  std::int64_t now_ns = 0;        // monotonic_ns() at its end
  BytesByCategory now = {};       // at its end
};

// The memory tracker: bytes alive by category and unit, exact at every moment, the peak with what it
// consisted of, and a limit. What is charged is what was asked for; what allocators round up or keep for
// reuse is not memory in use and shows in the kernel's figures (rondo/observe/memory_observer.h). Any thread
// may call any method.
class MemoryTracker {
 public:
  // Puts a block tracked under this thread's innermost label. Throws MemoryLimitError, and charges
  // nothing, when the total would go beyond the limit.
  void add(const void* block, std::uint64_t bytes);
  // Takes it off, from the label it has by then. False for an unknown block. Call before the memory is given
  // back, after that another thread may get the same address.
  bool remove(const void* block) noexcept;
  // From now on a block counts as so many bytes, whatever it was added with: a part of what several processes
  // share. False for an unknown block. Throws MemoryLimitError, and changes nothing, like add().
  bool resize(const void* block, std::uint64_t bytes);
  // Gives a block another label. False for an unknown block.
  bool relabel(const void* block, MemoryLabel label);

  // Memory without an address of its own; see MemoryCharge. charge() may throw MemoryLimitError.
  void charge(MemoryLabel label, std::uint64_t bytes);
  // Takes off what charge() put.
  void discharge(MemoryLabel label, std::uint64_t bytes) noexcept;

  // Bytes in memory-mapped files that stand in for memory: apart from the totals and the limit, since the
  // kernel writes them out and takes their memory when it needs it.
  void add_file_bytes(std::uint64_t bytes) { file_bytes_ += bytes; }
  // Takes off what add_file_bytes() put.
  void remove_file_bytes(std::uint64_t bytes) noexcept { file_bytes_ -= bytes; }
  std::uint64_t file_bytes() const { return file_bytes_; }  // now

  // Beyond this, add() and charge() throw; nothing is without limit. What is alive already stays.
  void set_limit(std::optional<Bytes> limit);
  std::optional<Bytes> limit() const;  // empty: none

  std::uint64_t total() const;       // bytes alive now
  std::uint64_t peak_total() const;  // the largest total
  MemoryUsage usage() const;         // what is alive now
  MemoryPeak peak() const;           // what was alive at the largest total
  // The peak starts anew from what is alive.
  void reset_peak();

  // For a timeline: the largest moment since the last call, and now.
  MemoryInterval take_interval();
  // The largest total since the last call; apart from intervals, so that both may be taken at a time.
  std::uint64_t take_largest_total();

 private:
  using ByUnit = std::vector<BytesByCategory>;

  // All with mutex_ held.
  void grow(MemoryLabel label, std::uint64_t bytes);
  void shrink(MemoryLabel label, std::uint64_t bytes);
  void require_room(MemoryLabel label, std::uint64_t bytes) const;
  std::uint64_t& at(MemoryLabel label);
  // Copies of a largest moment are made when it is over: the first time that something is given back.
  void settle_peak();
  void settle_interval();

  std::atomic<std::uint64_t> file_bytes_ = 0;

  mutable std::mutex mutex_;  // protects everything below
  BlockTable blocks_;
  ByUnit by_unit_ = ByUnit(1);
  BytesByCategory by_category_ = {};
  std::uint64_t total_ = 0;
  std::optional<Bytes> limit_;

  std::uint64_t peak_total_ = 0;
  MemoryMoment peak_moment_;
  MemoryUnit peak_unit_ = kRootMemoryUnit;
  std::int64_t peak_time_ns_ = 0;
  bool peak_is_now_ = true;  // the total is the peak; peak_by_unit_ is stale
  ByUnit peak_by_unit_;

  std::uint64_t largest_total_ = 0;  // since take_largest_total()

  std::uint64_t interval_total_ = 0;
  std::int64_t interval_time_ns_ = 0;
  bool interval_is_now_ = true;
  BytesByCategory interval_peak_ = {};
};

// The memory tracker of the calling thread's replica (rondo/base/replica.h): in a process that is one
// replica, of all of it. Never destroyed. A replica begins with the limit of number 0, see
// begin_replica_tracker.
MemoryTracker& replica_memory_tracker();

// For who makes a replica: its tracker takes over the limit of number 0's, unless they are the same. Called
// before its threads take memory.
void begin_replica_tracker(int replica);

// Calls `apply` with the calling thread's tracker and then with those of the other replicas, until one
// returns true: a thread may release what another replica's thread has taken. Returns whether one did.
bool any_replica_tracker(const std::function<bool(MemoryTracker&)>& apply);

// Memory that no tensor allocator hands out (a mapped file, a shared segment), tracked for the thread
// that makes it as long as this lives: in full at the rank that owns it.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  // Throws MemoryLimitError. Without a unit it is this thread's innermost one's.
  MemoryCharge(MemoryCategory category, Bytes bytes, std::optional<MemoryUnit> unit = {});
  // Takes the other's charge over.
  MemoryCharge(MemoryCharge&& other) noexcept;
  // Gives up its own charge and takes the other's over.
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge();

 private:
  MemoryTracker* tracker_ = nullptr;
  MemoryLabel label_;
  std::uint64_t bytes_ = 0;
};

// What MemoryLimitError says: the allocation that found no room, what is alive by category and by unit, the
// largest first, and what helps against the largest.
std::string limit_text(Bytes wanted, MemoryLabel label, const MemoryMoment& moment, Bytes limit,
                       const MemoryUsage& alive);

}  // namespace rondo
