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

// What a server and the workers of its host share. All of it lies in one mapped file that outlives the server
// where a launcher holds it: a server that starts again finds everything, the update that was under way
// included.
namespace rondo::server {

inline constexpr int kMostWorkers = 64;
// Elements that are updated, and read, as a whole: 64 KiB.
inline constexpr std::size_t kBlockElements = 16384;
// Longest time that a server which lives takes to write them.
inline constexpr auto kBlockTime = std::chrono::seconds(10);
// Rows that a sparse variable remembers as changed.
inline constexpr std::size_t kChangedRows = 65536;

enum class Mode : std::uint32_t { async, sync, ssp };

// Of all of a job's servers.
struct ServerOptions {
  Mode mode = Mode::async;
  std::uint32_t workers = 1;
  std::uint32_t staleness = 0;       // ssp: steps that the fastest worker may be ahead of the slowest
  std::uint32_t backup_workers = 0;  // sync: the slowest so many of each step are not waited for
};

// A variable, or the part of one that a server has: rows of equal length. A scalar is one row of one.
struct VariableSpec {
  std::string name;
  std::uint64_t rows = 1;
  std::uint64_t row_elements = 1;
  bool sparse = false;  // gradients name rows
  std::uint64_t elements() const { return rows * row_elements; }
};

// A refused one is not applied; only in a synchronous step that waits for others.
enum class EntryKind : std::uint32_t { dense, rows, end_of_step, refused };

// One push. Its gradient lies in the worker's area of that variable until the entry is done.
struct Entry {
  EntryKind kind = EntryKind::dense;
  std::uint32_t variable = 0;
  std::uint64_t rows = 0;  // of kind rows
  std::uint64_t step = 0;  // the worker's; with sync the servers'
  double weight = 1;       // of this gradient in a mean with others'
  OptimizerSpec spec = {};
  std::uint64_t request = 0;  // of a worker of another host: the number of what it asked
};

// A resting worker has done its steps, and waits for the others.
enum class WorkerPhase : std::uint32_t { absent, live, finished, lost, resting };
// Nobody waits for its gradients.
constexpr bool pushes_no_more(WorkerPhase phase) {
  return phase == WorkerPhase::finished || phase == WorkerPhase::lost || phase == WorkerPhase::resting;
}

// Written by its worker (head, sleeps, copies, begun) and the server (all others).
struct alignas(64) WorkerState {
  std::atomic<std::uint64_t> head;  // entries pushed
  std::atomic<std::uint32_t> sleeps;
  std::atomic<std::uint32_t> copies;            // a push is being written into its area
  alignas(64) std::atomic<std::uint64_t> tail;  // entries done
  std::atomic<std::uint32_t> done;              // changes with tail: what the worker sleeps on
  std::atomic<std::uint32_t> phase;             // WorkerPhase
  std::atomic<std::int64_t> process;            // of this host; 0: of another
  std::atomic<std::uint64_t> begun;             // steps that it has begun
  std::atomic<std::uint64_t> clock;             // steps that are applied
  std::atomic<std::uint64_t> lost_steps;        // begun and never applied
  std::atomic<std::uint64_t> refused;           // pushes with NaN or infinity, or of rows that are not
  std::atomic<std::uint64_t> late;              // sync: steps that came when enough others were there
  std::atomic<std::uint64_t> returns;           // how often it came back after it was lost
  // When it was taken for lost: what it was, and which of its steps count as lost until it is heard again.
  std::atomic<std::uint32_t> phase_before;
  std::atomic<std::uint64_t> unfinished_steps;
};

struct alignas(64) VariableState {
  std::uint64_t rows, row_elements;
  std::uint32_t sparse;
  std::atomic<std::uint32_t> version;                // odd while a block is being written
  std::atomic<std::uint64_t> step;                   // updates so far
  std::atomic<std::uint32_t> optimizer;              // 1 + OptimizerKind of the first push; 0: none yet
  std::atomic<std::uint32_t> prepared;               // 1 + slots that have pages and values; 0: not begun
  std::atomic<std::uint64_t> changed_head;           // rows written to the ring of changed rows so far
  std::uint64_t values, slots[kMostSlots], changed;  // offsets
  std::uint64_t area, area_bytes;                    // offset of worker 0's; of each worker
};

// The update that is under way, so that a server that starts again can finish it. Every field that is written
// while it is active is either written anew from the same inputs, or says by itself how far things are.
struct Task {
  std::atomic<std::uint64_t> active;
  std::uint64_t members;             // bit w: worker w's gradients
  std::uint64_t ends[kMostWorkers];  // of each member: its tail afterwards
  std::uint64_t step;                // sync: the step
  std::uint32_t one_variable;        // async: only this
  std::atomic<std::uint64_t> done;   // variable << 32 | blocks of it that are in place
  std::atomic<std::uint64_t> ready;  // the same, one further: the record holds that block's new values
  std::uint64_t step_after;          // of the variable
};

struct Header {
  std::uint64_t magic;
  std::uint64_t signature;  // of the variables
  ServerOptions options;
  std::uint32_t variables;
  std::uint64_t ring;                   // entries of a worker's ring
  std::atomic<std::uint32_t> ready;     // the chief has written the values
  std::atomic<std::uint32_t> hold;      // nothing is applied while it is set
  std::atomic<std::uint32_t> held;      // the server has seen it
  std::atomic<std::uint32_t> doorbell;  // pushes: what the server sleeps on
  std::atomic<std::uint32_t> server_sleeps;
  std::atomic<std::uint32_t> progress;  // ends of steps: what workers with bounded staleness sleep on
  std::atomic<std::uint32_t> watchers;  // of progress
  std::atomic<std::uint64_t> sync_step;
  std::atomic<std::uint64_t> recovered;  // updates that a server that came back found half done
  Task task;
  std::uint64_t record[1 + kMostSlots];  // offsets: new values and slots of a block
  std::uint64_t names;                   // offset of the variables' names, each with a zero behind
};

// The layout, over memory. A copy shares the memory. Any thread; what it gives is as the fields say.
class ServerMemory {
 public:
  // Bytes that format() needs.
  static std::size_t size_of(const std::vector<VariableSpec>& variables, const ServerOptions& options);
  // Lays out zeroed memory, and takes what it needs from the system. Throws UsageError for options or
  // variables that cannot be, Error where there is not that much memory.
  static ServerMemory format(std::shared_ptr<SharedMemory> memory, const std::vector<VariableSpec>& variables,
                             const ServerOptions& options);
  // Memory that was laid out before. Throws DataError when it was not, or by another version.
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
  // What it was laid out for.
  std::vector<VariableSpec> specs() const;
  // For who reads and writes a variable's values (slot -1) or a slot anywhere: its pages are mapped now, not
  // one by one when they are touched.
  void map_pages(std::size_t variable, int slot) const;
  // Pages of the slots, for this optimizer.
  void commit_slots(std::size_t variable, int slots) const;
  // Where worker `worker` puts its gradient: rows' numbers (of kind rows), then values.
  std::uint64_t* area_rows(std::size_t worker, std::size_t v) const {
    return at<std::uint64_t>(area_offset(worker, v));
  }
  float* area_values(std::size_t worker, std::size_t v) const {
    return at<float>(area_offset(worker, v) + (variable(v).sparse != 0 ? variable(v).rows * 8 : 0));
  }
  // Pages for `rows` rows with their numbers, or for the whole.
  void commit_area(std::size_t worker, std::size_t variable, std::uint64_t rows) const;
  std::uint64_t* changed(std::size_t v) const { return at<std::uint64_t>(variable(v).changed); }
  float* record(int part) const { return at<float>(header().record[part]); }

  // Copies `count` elements from `first` on, each block as it was at one moment. Throws PeerLostError when a
  // block that a server was writing stays unfinished until the deadline.
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

// Same for equal lists only: names, shapes, sparseness.
std::uint64_t signature_of(const std::vector<VariableSpec>& variables);

}  // namespace rondo::server
