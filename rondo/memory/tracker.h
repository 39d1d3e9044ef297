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

// A table of size and label of every live block, by address: a hash table with open addressing in one array,
// because a training step adds and removes thousands of blocks. One thread at a time.
class BlockTable {
 public:
  // A block in use.
  struct Block {
    std::uint64_t bytes = 0;  // size
    MemoryLabel label;        // category and unit that the block is counted under
  };

  // Makes an empty table.
  BlockTable();

  // Inserts a block. Returns the earlier entry of the address: a block that was released without remove().
  std::optional<Block> insert(const void* address, const Block& block);
  // Removes and returns an entry; nullopt for an unknown address.
  std::optional<Block> remove(const void* address);
  // Returns an entry, or null for an unknown address. Valid until the next insert or remove.
  Block* find(const void* address);
  std::size_t size() const { return size_; }  // number of blocks

 private:
  struct Slot {
    const void* address = nullptr;  // null: free
    Block block;
  };
  std::size_t home(const void* address) const;
  // Returns the slot of `address`, or the free one for it.
  std::size_t place(const void* address) const;
  void grow();

  std::vector<Slot> slots_;  // a power of two of them, at most half in use
  int shift_;                // 64 - log2(slots)
  std::size_t size_ = 0;
};

// Live bytes at one moment.
struct MemoryUsage {
  // The bytes of one unit of a model.
  struct Unit {
    std::string name = {};            // as given to memory_unit()
    BytesByCategory categories = {};  // bytes by category
  };
  std::uint64_t total = 0;          // bytes of all categories
  BytesByCategory categories = {};  // sums over all units
  std::vector<Unit> units = {};     // units with live bytes, in the order of their numbers

  // Returns the bytes of a category.
  std::uint64_t operator[](MemoryCategory category) const { return bytes_of(categories, category); }
  // Returns the bytes of one unit; all zero for one without live bytes.
  BytesByCategory of_unit(std::string_view name) const;
};

// The largest total so far and its moment.
struct MemoryPeak {
  MemoryUsage usage = {};    // live memory at the time of the peak
  std::int64_t step = 0;     // MemoryMoment of the allocating thread
  std::string phase = {};    // MemoryMoment of the allocating thread
  std::string unit = {};     // unit of the allocation
  std::int64_t time_ns = 0;  // monotonic_ns()
};

// Memory in the time between two calls of MemoryTracker::take_interval.
struct MemoryInterval {
  std::int64_t peak_time_ns = 0;  // monotonic_ns() of the largest total
  BytesByCategory peak = {};      // bytes at the time of the peak
  std::int64_t now_ns = 0;        // monotonic_ns() at the end
  BytesByCategory now = {};       // at the end
};

// A memory tracker: live bytes by category and unit, exact at every moment, the peak with its composition,
// and a limit. The tracker counts requested sizes; memory that allocators add by rounding or keep for reuse
// is not in use, and is included in the kernel's figures (rondo/observe/memory_observer.h). Any thread may
// call any method.
class MemoryTracker {
 public:
  // Adds a block under this thread's innermost label. Throws MemoryLimitError, and adds nothing, if the total
  // would exceed the limit.
  void add(const void* block, std::uint64_t bytes);
  // Removes a block under its current label. Returns false for an unknown block. Call it before the memory is
  // released; after that another thread may get the same address.
  bool remove(const void* block) noexcept;
  // Changes the counted size of a block: its part of memory that several processes share. Returns false for
  // an unknown block. Throws MemoryLimitError, and changes nothing, like add().
  bool resize(const void* block, std::uint64_t bytes);
  // Changes the label of a block. Returns false for an unknown block.
  bool relabel(const void* block, MemoryLabel label);

  // Adds memory without an address of its own; see MemoryCharge. Throws MemoryLimitError like add().
  void charge(MemoryLabel label, std::uint64_t bytes);
  // Removes memory of charge().
  void discharge(MemoryLabel label, std::uint64_t bytes) noexcept;

  // Adds bytes in memory-mapped files that replace memory: not part of the totals and the limit, since the
  // kernel writes them out and reclaims their memory on demand.
  void add_file_bytes(std::uint64_t bytes) { file_bytes_ += bytes; }
  // Removes bytes of add_file_bytes().
  void remove_file_bytes(std::uint64_t bytes) noexcept { file_bytes_ -= bytes; }
  std::uint64_t file_bytes() const { return file_bytes_; }  // current bytes in files

  // Sets the total beyond which add() and charge() throw; nullopt removes the limit. Existing blocks are not
  // affected.
  void set_limit(std::optional<Bytes> limit);
  std::optional<Bytes> limit() const;  // nullopt: no limit

  std::uint64_t total() const;       // bytes alive now
  std::uint64_t peak_total() const;  // the largest total
  MemoryUsage usage() const;         // live bytes by unit
  MemoryPeak peak() const;           // live bytes at the largest total
  // Restarts the peak from the live bytes.
  void reset_peak();

  // Returns the largest moment since the last call, and the current one, for a timeline.
  MemoryInterval take_interval();
  // Returns the largest total since the last call; independent of intervals, so that both may be used
  // together.
  std::uint64_t take_largest_total();

 private:
  using ByUnit = std::vector<BytesByCategory>;

  // All require mutex_.
  void grow(MemoryLabel label, std::uint64_t bytes);
  void shrink(MemoryLabel label, std::uint64_t bytes);
  void require_room(MemoryLabel label, std::uint64_t bytes) const;
  std::uint64_t& at(MemoryLabel label);
  // Copy the composition of a peak after it has ended, at the first release.
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

// Returns the memory tracker of the calling thread's replica (rondo/base/replica.h); in a process with one
// replica, the tracker of all its memory. Never destroyed. A replica begins with the limit of replica 0, see
// begin_replica_tracker.
MemoryTracker& replica_memory_tracker();

// Copies the limit of replica 0 to a new replica's tracker. Call it before the replica's threads allocate
// memory.
void begin_replica_tracker(int replica);

// Calls `apply` with the calling thread's tracker and then with those of the other replicas, until one
// returns true, because a thread may release memory of another replica's thread. Returns whether one did.
bool any_replica_tracker(const std::function<bool(MemoryTracker&)>& apply);

// A charge for memory that no tensor allocator provides (a mapped file, a shared segment), on the tracker of
// the thread that makes it, during its lifetime: in full at the rank that owns the memory.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  // Adds the charge. Without a unit, uses this thread's innermost one. Throws MemoryLimitError.
  MemoryCharge(MemoryCategory category, Bytes bytes, std::optional<MemoryUnit> unit = {});
  // Moves the other's charge.
  MemoryCharge(MemoryCharge&& other) noexcept;
  // Swaps the charges.
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge();

 private:
  MemoryTracker* tracker_ = nullptr;
  MemoryLabel label_;
  std::uint64_t bytes_ = 0;
};

// Returns the message of MemoryLimitError: the allocation that exceeded the limit, the live memory by
// category and by unit, the largest first, and remedies for the largest.
std::string limit_text(Bytes wanted, MemoryLabel label, const MemoryMoment& moment, Bytes limit,
                       const MemoryUsage& alive);

}  // namespace rondo
