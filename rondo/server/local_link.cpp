#include "rondo/server/local_link.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/channel/waiting.h"
#include "rondo/collective/codec/codec.h"

namespace rondo::server {
namespace {

// Time for which a worker yields its core before it sleeps: applying a small push takes less time than waking
// up.
constexpr auto kYieldFor = std::chrono::microseconds(50);
// Number of elements whose copy takes about as long as waking a server.
constexpr std::size_t kLongCopy = 16384;
constexpr auto kSayAfter = std::chrono::seconds(5);

}  // namespace

LocalLink::LocalLink(ServerMemory memory, std::size_t worker, std::string who, std::string whom)
    : memory_(std::move(memory)),
      worker_(worker),
      who_(std::move(who)),
      whom_(std::move(whom)),
      pushed_(memory_.variables(), 0),
      committed_(memory_.variables(), 0) {
  if (worker >= memory_.workers()) {
    throw UsageError(
        str(who_, " has number ", worker, ", but ", whom_, " was made for ", memory_.workers(), " workers"));
  }
  // Pushes to an earlier server process that are not applied yet: their gradients are still in their areas.
  const std::uint64_t head = state().head.load(std::memory_order_acquire);
  for (std::uint64_t number = state().tail.load(std::memory_order_acquire); number < head; ++number) {
    const Entry& entry = memory_.entry(worker_, number);
    if (entry.kind != EntryKind::end_of_step) pushed_[entry.variable] = number + 1;
  }
}

void LocalLink::give_up(const std::string& what) const {
  const ServerFigures figures = const_cast<LocalLink*>(this)->figures();
  std::vector<std::string> slow;
  for (std::size_t w = 0; w < figures.workers.size(); ++w) {
    const WorkerFigures& worker = figures.workers[w];
    const char* const phases[] = {"not there yet", "there", "finished", "lost", "done"};
    slow.push_back(str("worker ", w, ": ", phases[static_cast<std::size_t>(worker.phase)], ", ", worker.clock,
                       " steps"));
  }
  throw TimeoutError(str(who_, " timed out waiting for ", whom_, " ", what, "; ", figures.queued,
                         " pushes are in its queues; ", join(slow, "; ")),
                     {});
}

void LocalLink::wait_applied(std::uint64_t entries, const char* what, const Deadline& deadline) {
  const auto applied = [&] { return state().tail.load(std::memory_order_acquire) >= entries; };
  const TimePoint since = Clock::now();
  do {
    if (applied()) return;
    sched_yield();
  } while (Clock::now() - since < kYieldFor);
  bool said = false;
  state().sleeps.store(1);
  while (true) {
    const std::uint32_t done = state().done.load();
    if (applied()) break;
    futex_wait(state().done, done, std::min<Duration>(kSleepTime, deadline.remaining()));
    if (applied()) break;
    if (deadline.passed()) give_up(what);
    if (!said && Clock::now() - since > kSayAfter) {
      said = true;
      log::warning(who_, " waits for ", whom_, ", whose queues hold ", figures().queued, " pushes");
    }
  }
  state().sleeps.store(0);
}

void LocalLink::pull(std::size_t v, std::span<float> to, const Deadline& deadline) {
  wait_applied(pushed_[v], "to apply a gradient", deadline);
  memory_.read(v, 0, to.size(), to.data(), deadline.later_by(kBlockTime));
}

void LocalLink::pull_rows(std::size_t v, std::span<const std::uint64_t> rows, float* to,
                          const Deadline& deadline) {
  wait_applied(pushed_[v], "to apply a gradient", deadline);
  const VariableState& variable = memory_.variable(v);
  for (const std::uint64_t row : rows) {
    if (row >= variable.rows) {
      throw UsageError(
          str(who_, " asks ", whom_, " for row ", row, " of variable ", v, ", which has ", variable.rows));
    }
    memory_.read(v, row * variable.row_elements, variable.row_elements, to, deadline.later_by(kBlockTime));
    to += variable.row_elements;
  }
}

std::optional<std::vector<std::uint64_t>> LocalLink::changed_rows(std::size_t v, std::uint64_t& cursor,
                                                                  const Deadline& deadline) {
  wait_applied(pushed_[v], "to apply a gradient", deadline);
  const VariableState& variable = memory_.variable(v);
  const std::uint64_t head = variable.changed_head.load(std::memory_order_acquire);
  const std::uint64_t from = std::exchange(cursor, head);
  if (from == kNoCursor || head - from > kChangedRows / 2) return std::nullopt;
  std::vector<std::uint64_t> rows;
  for (std::uint64_t at = from; at < head; ++at) rows.push_back(memory_.changed(v)[at % kChangedRows]);
  // The ring may have been overwritten meanwhile.
  if (variable.changed_head.load(std::memory_order_acquire) - from > kChangedRows) return std::nullopt;
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

void LocalLink::commit(std::size_t v, std::uint64_t rows) {
  if (rows <= committed_[v]) return;
  memory_.commit_area(worker_, v, rows);
  committed_[v] = rows;
}

// Makes the first push of any worker decide on the optimizer, independent of the order of application.
// Relaxed, because nothing else is published with the number.
void LocalLink::claim_optimizer(std::size_t v, const Entry& how) const {
  std::atomic<std::uint32_t>& optimizer = memory_.variable(v).optimizer;
  const std::uint32_t mine = 1 + static_cast<std::uint32_t>(how.spec.kind);
  std::uint32_t before = optimizer.load(std::memory_order_relaxed);
  if (before == mine) return;
  if (before == 0 && optimizer.compare_exchange_strong(before, mine, std::memory_order_relaxed)) return;
  if (before == mine) return;
  throw MismatchError(
      str(who_, " pushes variable ", v, " with the optimizer ", to_text(how.spec.kind), ", but ", whom_,
          " has ", to_text(static_cast<OptimizerKind>(before - 1)), " for it"),
      {});
}

// Pushes an entry; `write` copies the gradient to the area in shared memory.
template <class Write>
void LocalLink::hand_over(std::size_t v, const Entry& entry, const Deadline& deadline, const Write& write) {
  const VariableState& variable = memory_.variable(v);
  const bool of_rows = entry.kind == EntryKind::rows;
  check(entry.spec, of_rows, who_);
  claim_optimizer(v, entry);
  wait_applied(pushed_[v], "to take another gradient of a variable", deadline);
  const std::uint64_t rows = of_rows ? entry.rows : variable.rows;
  struct Copying {
    explicit Copying(std::atomic<std::uint32_t>& flag) : flag(flag) { flag.store(1); }
    ~Copying() { flag.store(0); }
    std::atomic<std::uint32_t>& flag;
  } const copying(state().copies);
  // Wakes a sleeping server during the copy.
  if (rows * variable.row_elements >= kLongCopy) ring();
  commit(v, rows);
  write();
  Entry added = entry;
  added.variable = static_cast<std::uint32_t>(v);
  add(added);
  pushed_[v] = state().head.load();
}

void LocalLink::push(std::size_t v, std::span<const float> gradient, const Entry& how,
                     const Deadline& deadline) {
  Entry entry = how;
  entry.kind = EntryKind::dense;
  hand_over(v, entry, deadline,
            [&] { std::memcpy(memory_.area_values(worker_, v), gradient.data(), gradient.size_bytes()); });
}

void LocalLink::push_encoded(std::size_t v, const EncodedGradient& gradient, const Entry& how,
                             const Deadline& deadline) {
  const auto codec = collective::make_codec(gradient.codec);
  Entry entry = how;
  entry.kind = EntryKind::dense;
  hand_over(v, entry, deadline, [&] {
    codec->decode(gradient.bytes, {memory_.area_values(worker_, v), memory_.elements(v)});
  });
}

void LocalLink::push_rows(std::size_t v, std::span<const std::uint64_t> rows, const float* gradients,
                          const Entry& how, const Deadline& deadline) {
  const VariableState& variable = memory_.variable(v);
  if (variable.sparse == 0 || rows.size() > variable.rows) {
    throw UsageError(str(who_, " pushes ", rows.size(), " rows of variable ", v, ", of which ", whom_,
                         " has ", variable.rows, variable.sparse == 0 ? " that are not sparse" : ""));
  }
  Entry entry = how;
  entry.kind = EntryKind::rows;
  entry.rows = rows.size();
  hand_over(v, entry, deadline, [&] {
    std::copy(rows.begin(), rows.end(), memory_.area_rows(worker_, v));
    std::memcpy(memory_.area_values(worker_, v), gradients,
                rows.size() * variable.row_elements * sizeof(float));
  });
}

// Adds an entry. The ring always has space: it holds more entries than one per variable and the end of the
// step.
void LocalLink::add(const Entry& entry) {
  const std::uint64_t head = state().head.load();
  memory_.entry(worker_, head) = entry;
  memory_.entry(worker_, head).request = request_;
  state().head.store(head + 1, std::memory_order_release);
  ring();
}

void LocalLink::ring() {
  Header& header = memory_.header();
  header.doorbell.fetch_add(1);
  if (header.server_sleeps.load() != 0) futex_wake_all(header.doorbell);
}

// The entry and its request number become visible together, with `head`. A worker has one request at a time,
// so only its newest entry can be requested again. An applied entry remains in the ring until it is
// overwritten.
bool LocalLink::begin_request(std::uint64_t number) {
  request_ = number;
  const std::uint64_t head = state().head.load(std::memory_order_acquire);
  return head == 0 || memory_.entry(worker_, head - 1).request != number;
}

bool LocalLink::takes_push(std::size_t v) const { return state().tail.load() >= pushed_[v]; }

bool LocalLink::may_begin(std::uint64_t step) const {
  const ServerOptions& options = memory_.header().options;
  if (options.mode != Mode::ssp) return true;
  for (std::size_t worker = 0; worker < memory_.workers(); ++worker) {
    if (pushes_no_more(memory_.phase(worker)) || worker == worker_) continue;
    if (memory_.worker(worker).clock.load() + options.staleness < step) return false;
  }
  return true;
}

void LocalLink::begin_step(std::uint64_t step, const Deadline& deadline) {
  Header& header = memory_.header();
  if (!may_begin(step)) {
    header.watchers.fetch_add(1);
    while (true) {
      const std::uint32_t progress = header.progress.load();
      if (may_begin(step)) break;
      futex_wait(header.progress, progress, std::min<Duration>(kSleepTime, deadline.remaining()));
      if (!deadline.passed() || may_begin(step)) continue;
      header.watchers.fetch_sub(1);
      give_up(str("to let it begin step ", step + 1, ", more than ", header.options.staleness,
                  " ahead of the slowest worker"));
    }
    header.watchers.fetch_sub(1);
  }
  state().begun.store(step + 1);
}

void LocalLink::end_step(std::uint64_t step, double weight, const Deadline& deadline) {
  // Steps without pushes would fill the ring. Never waits for entries of this step: a synchronous server
  // applies none of them before the end-of-step entry, which is added here.
  const std::uint64_t head = state().head.load();
  const std::uint64_t room = memory_.header().ring - memory_.variables() - 2;
  if (head > room) wait_applied(head - room, "to apply earlier steps", deadline);
  Entry entry;
  entry.kind = EntryKind::end_of_step;
  entry.step = step;
  entry.weight = weight;
  add(entry);
}

void LocalLink::flush(const Deadline& deadline) {
  wait_applied(state().head.load(), "to apply a step", deadline);
}

ServerFigures LocalLink::figures() {
  ServerFigures figures;
  for (std::size_t w = 0; w < memory_.workers(); ++w) {
    const WorkerState& worker = memory_.worker(w);
    figures.queued += worker.head.load() - worker.tail.load();
    figures.workers.push_back({.phase = memory_.phase(w),
                               .clock = worker.clock.load(),
                               .begun = worker.begun.load(),
                               .lost_steps = worker.lost_steps.load(),
                               .refused = worker.refused.load(),
                               .late = worker.late.load(),
                               .returns = worker.returns.load()});
  }
  figures.sync_step = memory_.header().sync_step.load();
  figures.open = memory_.header().ready.load() != 0;
  figures.recovered = memory_.header().recovered.load();
  return figures;
}

void LocalLink::rest() {
  state().phase.store(static_cast<std::uint32_t>(WorkerPhase::resting));
  ring();
}

bool LocalLink::is_open() { return memory_.header().ready.load() != 0; }

void LocalLink::hold(const Deadline& deadline) {
  flush(deadline);
  Header& header = memory_.header();
  header.hold.store(static_cast<std::uint32_t>(worker_) + 1);
  while (header.held.load() != header.hold.load()) {
    ring();
    if (deadline.passed()) {
      release();
      give_up("to pause for a checkpoint");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

void LocalLink::release() {
  memory_.header().hold.store(0);
  ring();
}

std::uint64_t LocalLink::read_state(std::size_t v, int slot, std::span<float> to) {
  const float* const from = slot < 0 ? memory_.values(v) : memory_.slot(v, slot);
  std::memcpy(to.data(), from, to.size_bytes());
  return memory_.variable(v).step.load();
}

void LocalLink::write_state(std::size_t v, int slot, std::span<const float> from, std::uint64_t updates,
                            const OptimizerSpec& spec) {
  write_part(v, slot, 0, std::as_bytes(from), updates, spec);
}

void LocalLink::write_part(std::size_t v, int slot, std::size_t first, std::span<const std::byte> from,
                           std::uint64_t updates, const OptimizerSpec& spec) {
  if (slot >= 0) memory_.commit_slots(v, slot + 1);
  std::memcpy((slot < 0 ? memory_.values(v) : memory_.slot(v, slot)) + first, from.data(), from.size());
  VariableState& variable = memory_.variable(v);
  if (updates == 0) return;
  variable.prepared.store(std::max(variable.prepared.load(), static_cast<std::uint32_t>(2 + slot)));
  variable.step.store(updates);
  variable.optimizer.store(1 + static_cast<std::uint32_t>(spec.kind));
}

}  // namespace rondo::server
