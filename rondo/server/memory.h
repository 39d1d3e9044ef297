#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/channel/shared_memory.h"
#include "rondo/server/optimizer.h"

// Layout of the memory shared by a server and the workers of its host. It is one mapped file that outlives
// the server if a launcher holds it. A restarted server finds all data, including an unfinished update.
namespace rondo::server {

inline constexpr int kMostWorkers = 64;
// Number of elements that are updated and read as one block: 64 KiB.
inline constexpr std::size_t kBlockElements = 16384;
// Longest time that a running server takes to write one block.
inline constexpr auto kBlockTime = std::chrono::seconds(10);
// Number of changed rows that a sparse variable records.
inline constexpr std::size_t kChangedRows = 65536;

enum class Mode : std::uint32_t { async, sync, ssp };

// Options of all servers of a job.
struct ServerOptions {
  Mode mode = Mode::async;
  std::uint32_t workers = 1;
  std::uint32_t staleness = 0;  // ssp: maximum number of steps between the fastest and the slowest worker
  std::uint32_t backup_workers = 0;  // sync: number of slowest workers that a step does not wait for
};

// A variable, or a server's shard of one: rows of equal length. A scalar has one row with one element.
struct VariableSpec {
  std::string name;
  std::uint64_t rows = 1;
  std::uint64_t row_elements = 1;
  bool sparse = false;  // gradients consist of numbered rows
  std::uint64_t elements() const { return rows * row_elements; }
};

// Kind of an entry. A refused entry is not applied; it occurs only in a synchronous step that waits for
// others.
enum class EntryKind : std::uint32_t { dense, rows, end_of_step, refused };

// One push. Its gradient is in the worker's area of the variable until the entry is done.
struct Entry {
  EntryKind kind = EntryKind::dense;
  std::uint32_t variable = 0;
  std::uint64_t rows = 0;  // for kind rows: number of rows; for write_state messages: number of updates
  std::uint64_t step = 0;  // the worker's step; with sync, the servers' step
  double weight = 1;       // weight of the gradient in the mean over workers
  OptimizerSpec spec = {};
  std::uint64_t request = 0;  // for a worker of another host: number of its request
};

// Phase of a worker. A resting worker has done its steps and waits for the others.
enum class WorkerPhase : std::uint32_t { absent, live, finished, lost, resting };
// Returns whether no step waits for gradients of a worker in this phase.
constexpr bool pushes_no_more(WorkerPhase phase) {
  return phase == WorkerPhase::finished || phase == WorkerPhase::lost || phase == WorkerPhase::resting;
}

// State of a worker. The worker writes head, sleeps, copies and begun; the server writes the other fields.
struct alignas(64) WorkerState {
  std::atomic<std::uint64_t> head;  // number of pushed entries
  std::atomic<std::uint32_t> sleeps;
  std::atomic<std::uint32_t> copies;            // 1 while a push is being written into the worker's area
  alignas(64) std::atomic<std::uint64_t> tail;  // number of completed entries
  std::atomic<std::uint32_t> done;              // futex for the worker; changes with tail
  std::atomic<std::uint32_t> phase;             // WorkerPhase
  std::atomic<std::int64_t> process;            // pid of a worker on this host; 0: another host
  std::atomic<std::uint64_t> begun;             // number of begun steps
  std::atomic<std::uint64_t> clock;             // number of applied steps
  std::atomic<std::uint64_t> lost_steps;        // steps that were begun and never applied
  std::atomic<std::uint64_t> refused;           // pushes with NaN, infinity or nonexistent rows
  std::atomic<std::uint64_t> late;              // sync: steps that arrived after enough others
  std::atomic<std::uint64_t> returns;           // number of returns after the worker was lost
  // When the worker was declared lost: its phase before, and the steps that count as lost unless it is heard
  // again.
  std::atomic<std::uint32_t> phase_before;
  std::atomic<std::uint64_t> unfinished_steps;
};

struct alignas(64) VariableState {
  std::uint64_t rows, row_elements;
  std::uint32_t sparse;
  std::atomic<std::uint32_t> version;       // odd while a block is being written
  std::atomic<std::uint64_t> step;          // number of updates
  std::atomic<std::uint32_t> optimizer;     // 1 + OptimizerKind of the first push; 0: none yet
  std::atomic<std::uint32_t> prepared;      // 1 + number of slots that have pages and values; 0: none
  std::atomic<std::uint64_t> changed_head;  // number of rows written to the ring of changed rows
  std::uint64_t values, slots[kMostSlots], changed;  // offsets
  std::uint64_t area, area_bytes;                    // offset of worker 0's area; bytes of each worker's area
};

// The update in progress, so that a restarted server can finish it. Every field that is written while the
// task is active is either recomputed from the same inputs or records the progress itself.
struct Task {
  std::atomic<std::uint64_t> active;
  std::uint64_t members;             // bit w: gradients of worker w
  std::uint64_t ends[kMostWorkers];  // by member: its tail after the task
  std::uint64_t step;                // sync: number of the step
  std::uint32_t one_variable;        // async: the only variable
  std::atomic<std::uint64_t> done;   // variable << 32 | number of its blocks that are in place
  // same as done, one block ahead: the record holds that block's new values
  std::atomic<std::uint64_t> ready;
  std::uint64_t step_after;  // the variable's number of updates after the task
};

struct Header {
  std::uint64_t magic;
  std::uint64_t signature;  // hash of the variables
  ServerOptions options;
  std::uint32_t variables;
  std::uint64_t ring;                   // capacity of a worker's ring in entries
  std::atomic<std::uint32_t> ready;     // the chief has written the values
  std::atomic<std::uint32_t> hold;      // nothing is applied while this is not 0
  std::atomic<std::uint32_t> held;      // value of `hold` that the server has acknowledged
  std::atomic<std::uint32_t> doorbell;  // futex for the server; changes with each push
  std::atomic<std::uint32_t> server_sleeps;
  // futex for workers with bounded staleness; changes with each end of a step
  std::atomic<std::uint32_t> progress;
  std::atomic<std::uint32_t> watchers;  // number of workers that wait for progress
  std::atomic<std::uint64_t> sync_step;
  std::atomic<std::uint64_t> recovered;  // number of unfinished updates that restarted servers completed
  Task task;
  std::uint64_t record[1 + kMostSlots];  // offsets of the record: a block's new values and slots
  std::uint64_t names;                   // offset of the variables' names, zero-terminated
};

// A view of the layout over mapped memory. Copies share the memory. Thread-safe; the fields document the
// access to their content.
class ServerMemory {
 public:
  // Returns the number of bytes that format() needs.
  static std::size_t size_of(const std::vector<VariableSpec>& variables, const ServerOptions& options);
  // Lays out zeroed memory and allocates its pages. Throws UsageError for invalid options or variables, and
  // Error if there is not enough memory.
  static ServerMemory format(std::shared_ptr<SharedMemory> memory, const std::vector<VariableSpec>& variables,
                             const ServerOptions& options);
  // Opens memory that format() has laid out. Throws DataError if it was not, or by another version.
  static ServerMemory open(std::shared_ptr<SharedMemory> memory);

  Header& header() const { return *at<Header>(0); }
  WorkerState& worker(std::size_t worker) const { return at<WorkerState>(workers_)[worker]; }
  Entry& entry(std::size_t worker, std::uint64_t number) const {
    return at<Entry>(rings_)[worker * header().ring + number % header().ring];
  }
  VariableState& variable(std::size_t variable) const { return at<VariableState>(variables_)[variable]; }
  std::size_t variables() const { return header().variables; }
  std::size_t workers() const { return header().options.workers; }
  std::size_t elements(std::size_t v) const { return variable(v).rows * variable(v).row_elements; }
  float* values(std::size_t v) const { return at<float>(variable(v).values); }
  float* slot(std::size_t v, int slot) const { return at<float>(variable(v).slots[slot]); }
  // Returns the variables of the layout.
  std::vector<VariableSpec> specs() const;
  // Maps all pages of a variable's values (slot -1) or a slot now, instead of one by one on first access. For
  // random access.
  void map_pages(std::size_t variable, int slot) const;
  // Allocates the pages of the first `slots` slots.
  void commit_slots(std::size_t variable, int slots) const;
  // Return the area of worker `worker` for its gradient: row numbers (kind rows), then values.
  std::uint64_t* area_rows(std::size_t worker, std::size_t v) const {
    return at<std::uint64_t>(area_offset(worker, v));
  }
  float* area_values(std::size_t worker, std::size_t v) const {
    return at<float>(area_offset(worker, v) + (variable(v).sparse != 0 ? variable(v).rows * 8 : 0));
  }
  // Allocates pages for `rows` rows with their numbers, or for the whole gradient.
  void commit_area(std::size_t worker, std::size_t variable, std::uint64_t rows) const;
  std::uint64_t* changed(std::size_t v) const { return at<std::uint64_t>(variable(v).changed); }
  float* record(int part) const { return at<float>(header().record[part]); }

  // Copies `count` elements from `first` on; each block is consistent. Throws PeerLostError if a block
  // remains half-written until the deadline.
  void read(std::size_t variable, std::size_t first, std::size_t count, float* to,
            const Deadline& deadline) const;

  WorkerPhase phase(std::size_t w) const { return static_cast<WorkerPhase>(worker(w).phase.load()); }
  const std::shared_ptr<SharedMemory>& memory() const { return memory_; }

 private:
  explicit ServerMemory(std::shared_ptr<SharedMemory> memory) : memory_(std::move(memory)) {}
  template <class T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(memory_->data() + offset);
  }
  std::size_t area_offset(std::size_t worker, std::size_t v) const {
    return variable(v).area + worker * variable(v).area_bytes;
  }
  void find_parts();

  std::shared_ptr<SharedMemory> memory_;
  std::size_t workers_ = 0, rings_ = 0, variables_ = 0;  // offsets
};

// Returns a hash of names, shapes and sparseness; equal lists have equal hashes.
std::uint64_t signature_of(const std::vector<VariableSpec>& variables);

}  // namespace rondo::server
