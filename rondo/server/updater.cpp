#include "rondo/server/updater.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/channel/waiting.h"

namespace rondo::server {
namespace {

constexpr std::uint64_t progress_of(std::size_t variable, std::size_t blocks) {
  return static_cast<std::uint64_t>(variable) << 32U | blocks;
}

// Block count that marks a variable as complete.
constexpr std::size_t kAll = 0xffffffffU;

constexpr std::uint64_t bit(std::size_t worker) { return std::uint64_t{1} << worker; }

// Number of rows to prefetch ahead, because rows of a table are far apart.
constexpr std::size_t kRowsAhead = 8;
// Limit of a push in elements whose rows are all prefetched while its gradient is checked: they fit a core's
// cache.
constexpr std::size_t kCachedElements = 131072;
// Longest time that the server stays awake for a worker that has announced a push.
constexpr auto kCopyTime = std::chrono::microseconds(200);
constexpr std::size_t kLineElements = 64 / sizeof(float);

std::size_t rows_per_block(const VariableState& variable) {
  return std::max<std::size_t>(1, kBlockElements / std::max<std::size_t>(1, variable.row_elements));
}

}  // namespace

Updater::Updater(ServerMemory memory) : memory_(std::move(memory)), checked_(memory_.workers()) {
  for (std::size_t v = 0; v < memory_.variables(); ++v) {
    if (memory_.variable(v).sparse != 0) memory_.map_pages(v, -1);
  }
  if (memory_.header().task.active.load() == 0) return;
  ++memory_.header().recovered;
  run_task();
}

bool Updater::run_once() {
  Header& header = memory_.header();
  // Sequentially consistent and in this order: a client that sets `hold` after the check below sees `held`
  // reset, also one left from the last hold.
  header.held.store(0);
  if (const std::uint32_t hold = header.hold.load(); hold != 0) {
    header.held.store(hold);
    return false;
  }
  if (header.options.mode == Mode::sync) return run_synchronous();
  for (std::size_t i = 0; i < memory_.workers(); ++i) {
    const std::size_t worker = (next_ + i) % memory_.workers();
    WorkerState& state = memory_.worker(worker);
    const std::uint64_t tail = state.tail.load();
    if (tail == state.head.load(std::memory_order_acquire)) continue;
    next_ = worker + 1;
    process(worker, memory_.entry(worker, tail));
    return true;
  }
  return false;
}

void Updater::wait(Duration patience) {
  Header& header = memory_.header();
  const std::uint32_t rings = header.doorbell.load();
  header.server_sleeps.store(1);
  const auto pushed = [&](std::size_t worker) {
    return memory_.worker(worker).tail.load() != memory_.worker(worker).head.load();
  };
  bool idle = true, copies = true;
  for (const Deadline soon = Deadline::after(kCopyTime); idle && copies && !soon.passed();) {
    copies = false;
    for (std::size_t worker = 0; idle && worker < memory_.workers(); ++worker) {
      copies = copies || memory_.worker(worker).copies.load() != 0;
      idle = !pushed(worker);
    }
    if (idle && copies) sched_yield();
  }
  // With synchronous steps, there may be pushes that wait for other workers.
  if (idle || header.options.mode == Mode::sync || header.hold.load() != 0)
    futex_wait(header.doorbell, rings, patience);
  header.server_sleeps.store(0);
}

void Updater::process(std::size_t worker, const Entry& entry) {
  WorkerState& state = memory_.worker(worker);
  const std::uint64_t tail = state.tail.load();
  if (entry.kind == EntryKind::end_of_step) {
    finish_step(worker, entry);
    acknowledge(worker, tail + 1);
    return announce_progress();
  }
  if (!is_acceptable(worker, entry)) {
    ++state.refused;
    return acknowledge(worker, tail + 1);
  }
  Task& task = memory_.header().task;
  task.members = bit(worker);
  task.ends[worker] = tail + 1;
  task.one_variable = entry.variable;
  task.done.store(progress_of(entry.variable, 0));
  task.ready.store(task.done.load());
  task.step_after = memory_.variable(entry.variable).step.load() + 1;
  task.active.store(1, std::memory_order_release);
  point();
  run_task();
}

void Updater::finish_step(std::size_t worker, const Entry& entry) {
  WorkerState& state = memory_.worker(worker);
  state.clock.store(entry.step + 1);
}

// Returns whether an entry may be applied. A gradient with NaN, infinity or a nonexistent row is refused as a
// whole and counted: one step of one worker is lost, but not the model.
bool Updater::is_acceptable(std::size_t worker, const Entry& entry) {
  const VariableState& variable = memory_.variable(entry.variable);
  const bool of_rows = entry.kind == EntryKind::rows;
  const std::size_t rows = of_rows ? entry.rows : variable.rows;
  if (entry.kind == EntryKind::refused) return false;
  bool acceptable = rows <= variable.rows;
  if (acceptable && of_rows) {
    const std::uint64_t* const numbers = memory_.area_rows(worker, entry.variable);
    acceptable = std::all_of(numbers, numbers + rows, [&](std::uint64_t row) { return row < variable.rows; });
    const int slots = variable.prepared.load() == 0 ? 0 : slots_of(entry.spec);
    const std::size_t elements = rows * variable.row_elements * (1 + static_cast<std::size_t>(slots));
    for (std::size_t i = 0; acceptable && elements <= kCachedElements && i < rows; ++i)
      prefetch_row(entry.variable, slots, numbers[i]);
  }
  acceptable = acceptable && all_finite({memory_.area_values(worker, entry.variable),
                                         rows * static_cast<std::size_t>(variable.row_elements)});
  if (!acceptable && memory_.worker(worker).refused.load() == 0) {
    log::warning("worker ", worker, ": the gradient of variable ", entry.variable, " in its step ",
                 entry.step + 1,
                 " has NaN, infinity or a row that does not exist; such gradients are not applied, and later "
                 "ones are not reported");
  }
  return acceptable;
}

void Updater::run_task() {
  Task& task = memory_.header().task;
  const bool synchronous = memory_.header().options.mode == Mode::sync;
  const std::size_t last = synchronous ? memory_.variables() : task.one_variable + 1;
  for (std::size_t v = task.done.load() >> 32U;;) {
    if (task.done.load() != progress_of(v, kAll)) run_variable(v);
    if (++v >= last) break;
    // `done` last: until then all of this is repeated after a crash, with the same result.
    task.step_after = memory_.variable(v).step.load() + 1;
    task.ready.store(progress_of(v, 0));
    task.done.store(progress_of(v, 0));
    point();
  }
  if (synchronous) memory_.header().sync_step.store(task.step + 1);
  for (std::size_t worker = 0; worker < memory_.workers(); ++worker) {
    if ((task.members & bit(worker)) == 0) continue;
    if (synchronous) {
      WorkerState& state = memory_.worker(worker);
      state.clock.store(memory_.entry(worker, task.ends[worker] - 1).step + 1);
    }
    point();
    acknowledge(worker, task.ends[worker]);
  }
  task.active.store(0, std::memory_order_release);
  if (synchronous) announce_progress();
}

// Applies the gradients of the task's members for one variable, if there are any.
void Updater::run_variable(std::size_t v) {
  const Task& task = memory_.header().task;
  VariableState& variable = memory_.variable(v);
  std::vector<const Entry*> entries;
  std::vector<std::size_t> workers;
  std::vector<double> shares;
  double total = 0;
  for (std::size_t worker = 0; worker < memory_.workers(); ++worker) {
    if ((task.members & bit(worker)) == 0) continue;
    if (memory_.header().options.mode != Mode::sync) {
      entries.push_back(&memory_.entry(worker, task.ends[worker] - 1));
      workers.push_back(worker);
      shares.push_back(1);
      total = 1;
      continue;
    }
    // Searches from this member's tail at the start of the task. The entry for the end of the step has the
    // weight of the step.
    const std::uint64_t end = task.ends[worker];
    total += memory_.entry(worker, end - 1).weight;
    for (std::uint64_t number = end - 1;
         number-- > end - std::min<std::uint64_t>(end, memory_.header().ring);) {
      const Entry& entry = memory_.entry(worker, number);
      if (entry.kind == EntryKind::end_of_step) break;
      if (entry.variable != v || entry.kind == EntryKind::refused) continue;
      entries.push_back(&entry);
      workers.push_back(worker);
      shares.push_back(entry.weight);
      break;
    }
  }
  if (entries.empty()) return memory_.header().task.done.store(progress_of(v, kAll));
  for (double& share : shares) share = total > 0 ? share / total : 0;
  const OptimizerSpec spec = entries.front()->spec;
  prepare_slots(v, spec);

  const bool of_rows = std::any_of(entries.begin(), entries.end(),
                                   [](const Entry* entry) { return entry->kind == EntryKind::rows; });
  if (of_rows) {
    const Rows rows = merge_rows(v, entries, workers, shares);
    run_blocks(v, spec, {}, &rows);
    point();
    if (variable.step.load() != task.step_after) {
      std::uint64_t* const changed = memory_.changed(v);
      const std::uint64_t head = variable.changed_head.load();
      if (rows.count <= kChangedRows) {
        for (std::size_t i = 0; i < rows.count; ++i) changed[(head + i) % kChangedRows] = rows.numbers[i];
      }
      point();
      variable.changed_head.store(head + rows.count, std::memory_order_release);
    }
  } else {
    std::vector<Source> sources;
    for (std::size_t i = 0; i < workers.size(); ++i)
      sources.push_back({memory_.area_values(workers[i], v), shares[i]});
    run_blocks(v, spec, sources, nullptr);
    // Readers of the changed rows must treat all rows as changed.
    if (variable.sparse != 0 && variable.step.load() != task.step_after)
      variable.changed_head.store(variable.changed_head.load() + kChangedRows + 1);
  }
  point();
  variable.step.store(task.step_after);
  point();
  memory_.header().task.done.store(progress_of(v, kAll), std::memory_order_release);
}

void Updater::prepare_slots(std::size_t v, const OptimizerSpec& spec) {
  VariableState& variable = memory_.variable(v);
  const int slots = slots_of(spec);
  const std::uint32_t before = variable.prepared.load();
  if (before > static_cast<std::uint32_t>(slots)) return;
  memory_.commit_slots(v, slots);
  if (before == 0 && spec.kind == OptimizerKind::adagrad && spec.initial_accumulator != 0)
    std::fill_n(memory_.slot(v, 0), memory_.elements(v), static_cast<float>(spec.initial_accumulator));
  variable.prepared.store(1 + static_cast<std::uint32_t>(slots));
  for (int slot = 0; slot < slots && variable.sparse != 0; ++slot) memory_.map_pages(v, slot);
}

void Updater::run_blocks(std::size_t v, const OptimizerSpec& spec, const std::vector<Source>& sources,
                         const Rows* rows) {
  Task& task = memory_.header().task;
  const VariableState& variable = memory_.variable(v);
  const auto row_elements = static_cast<std::size_t>(variable.row_elements);
  const int slots = slots_of(spec);
  const std::size_t step = rows != nullptr ? rows_per_block(variable) : kBlockElements;
  const std::size_t whole = rows != nullptr ? rows->count : memory_.elements(v);
  const std::size_t blocks = (whole + step - 1) / step;
  for (auto block = static_cast<std::size_t>(task.done.load() & 0xffffffffU); block < blocks; ++block) {
    const std::size_t first = block * step;
    const std::size_t count = std::min(step, whole - first);
    if (task.ready.load() == task.done.load()) {
      const auto compute = [&](std::size_t at, std::size_t to, std::size_t size, const float* gradient) {
        Stretch stretch{.value = memory_.values(v) + at,
                        .slots = {},
                        .gradient = gradient,
                        .new_value = memory_.record(0) + to,
                        .new_slots = {},
                        .size = size};
        for (int slot = 0; slot < slots; ++slot) {
          stretch.slots[slot] = memory_.slot(v, slot) + at;
          stretch.new_slots[slot] = memory_.record(1 + slot) + to;
        }
        update(spec, task.step_after, stretch);
      };
      if (rows != nullptr) {
        for (std::size_t i = 0; i < count; ++i) {
          if (first + i + kRowsAhead < whole)
            prefetch_row(v, slots, static_cast<std::size_t>(rows->numbers[first + i + kRowsAhead]));
          compute(static_cast<std::size_t>(rows->numbers[first + i]) * row_elements, i * row_elements,
                  row_elements, rows->gradients + (first + i) * row_elements);
        }
      } else if (sources.size() == 1 && sources.front().share == 1) {
        compute(first, 0, count, sources.front().gradient + first);
      } else {
        mean_.assign(count, 0);
        for (const Source& source : sources) {
          const auto share = static_cast<float>(source.share);
          for (std::size_t i = 0; i < count; ++i) mean_[i] += share * source.gradient[first + i];
        }
        compute(first, 0, count, mean_.data());
      }
      point();
      task.ready.store(progress_of(v, block + 1), std::memory_order_release);
    }
    point();
    write_block(v, slots, first, count, rows);
    task.done.store(progress_of(v, block + 1), std::memory_order_release);
    point();
  }
}

void Updater::prefetch_row(std::size_t v, int slots, std::size_t row) const {
  const auto row_elements = static_cast<std::size_t>(memory_.variable(v).row_elements);
  for (int part = 0; part <= slots; ++part) {
    const float* const place =
        (part == 0 ? memory_.values(v) : memory_.slot(v, part - 1)) + row * row_elements;
    for (std::size_t i = 0; i < row_elements; i += kLineElements) __builtin_prefetch(place + i, 1);
  }
}

void Updater::write_block(std::size_t v, int slots, std::size_t first, std::size_t count, const Rows* rows) {
  VariableState& variable = memory_.variable(v);
  const std::uint32_t writing = variable.version.load() | 1U;
  variable.version.store(writing);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (int part = 0; part <= slots; ++part) {
    float* const place = part == 0 ? memory_.values(v) : memory_.slot(v, part - 1);
    if (rows == nullptr) {
      std::memcpy(place + first, memory_.record(part), count * sizeof(float));
      point();
      continue;
    }
    const auto row_elements = static_cast<std::size_t>(variable.row_elements);
    for (std::size_t i = 0; i < count; ++i) {
      std::memcpy(place + rows->numbers[first + i] * row_elements, memory_.record(part) + i * row_elements,
                  row_elements * sizeof(float));
    }
    point();
  }
  variable.version.store(writing + 1, std::memory_order_release);
}

// Returns one worker's rows directly if they ascend. Rows of several workers, and repeated rows, are added up
// in the order of workers.
Updater::Rows Updater::merge_rows(std::size_t v, const std::vector<const Entry*>& entries,
                                  const std::vector<std::size_t>& workers,
                                  const std::vector<double>& shares) {
  const VariableState& variable = memory_.variable(v);
  const auto row_elements = static_cast<std::size_t>(variable.row_elements);
  if (entries.size() == 1 && shares.front() == 1 && entries.front()->kind == EntryKind::rows) {
    const std::uint64_t* const numbers = memory_.area_rows(workers.front(), v);
    const auto count = static_cast<std::size_t>(entries.front()->rows);
    if (std::adjacent_find(numbers, numbers + count, std::greater_equal<>()) == numbers + count)
      return {numbers, memory_.area_values(workers.front(), v), count};
  }
  struct Part {
    std::uint64_t row;
    const float* gradient;
    double share;
  };
  std::vector<Part> parts;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const float* const gradients = memory_.area_values(workers[i], v);
    const bool all = entries[i]->kind == EntryKind::dense;
    const auto count = static_cast<std::size_t>(all ? variable.rows : entries[i]->rows);
    for (std::size_t row = 0; row < count; ++row) {
      parts.push_back(
          {all ? row : memory_.area_rows(workers[i], v)[row], gradients + row * row_elements, shares[i]});
    }
  }
  std::stable_sort(parts.begin(), parts.end(), [](const Part& a, const Part& b) { return a.row < b.row; });
  merged_numbers_.clear();
  merged_gradients_.clear();
  for (const Part& part : parts) {
    if (merged_numbers_.empty() || merged_numbers_.back() != part.row) {
      merged_numbers_.push_back(part.row);
      merged_gradients_.resize(merged_gradients_.size() + row_elements, 0.0F);
    }
    float* const sum = merged_gradients_.data() + merged_gradients_.size() - row_elements;
    for (std::size_t i = 0; i < row_elements; ++i)
      sum[i] += static_cast<float>(part.share) * part.gradient[i];
  }
  return {merged_numbers_.data(), merged_gradients_.data(), merged_numbers_.size()};
}

// Returns the position after the end of the worker's current step in its ring; 0 if the step is incomplete.
std::uint64_t Updater::end_of_step(std::size_t worker) const {
  const WorkerState& state = memory_.worker(worker);
  const std::uint64_t head = state.head.load(std::memory_order_acquire);
  for (std::uint64_t number = state.tail.load(); number < head; ++number) {
    if (memory_.entry(worker, number).kind == EntryKind::end_of_step) return number + 1;
  }
  return 0;
}

void Updater::drop_late(std::size_t worker, std::uint64_t end) {
  WorkerState& state = memory_.worker(worker);
  ++state.late;
  state.clock.store(memory_.entry(worker, end - 1).step + 1);
  acknowledge(worker, end);
}

// Refuses the whole step if one entry is unacceptable. The weight becomes 0, so that its samples do not count
// in the mean of the others.
void Updater::refuse_unacceptable(std::size_t worker, std::uint64_t end) {
  WorkerState& state = memory_.worker(worker);
  bool acceptable = true;
  for (std::uint64_t number = state.tail.load(); acceptable && number + 1 < end; ++number)
    acceptable = is_acceptable(worker, memory_.entry(worker, number));
  if (acceptable) return;
  // A restarted server checks a waiting step again.
  if (memory_.entry(worker, state.tail.load()).kind != EntryKind::refused) ++state.refused;
  for (std::uint64_t number = state.tail.load(); number + 1 < end; ++number)
    memory_.entry(worker, number).kind = EntryKind::refused;
  memory_.entry(worker, end - 1).weight = 0;
}

bool Updater::run_synchronous() {
  Header& header = memory_.header();
  Task& task = header.task;
  std::uint64_t members = 0;
  std::size_t gone = 0;
  std::size_t there = 0;
  for (std::size_t worker = 0; worker < memory_.workers(); ++worker) {
    const bool pushes = !pushes_no_more(memory_.phase(worker));
    const std::uint64_t end = end_of_step(worker);
    if (end == 0) {
      // A worker whose whole step is in the ring counts as present, even if it has ended since.
      if (!pushes) ++gone;
      continue;
    }
    if (memory_.entry(worker, end - 1).step != header.sync_step.load()) {
      drop_late(worker, end);
      return true;
    }
    if (checked_[worker] != end) refuse_unacceptable(worker, end);
    checked_[worker] = end;
    members |= bit(worker);
    task.ends[worker] = end;
    ++there;
  }
  const std::size_t wanted = std::max<std::size_t>(
      1, std::min<std::size_t>(header.options.workers - header.options.backup_workers,
                               header.options.workers - std::min<std::size_t>(gone, header.options.workers)));
  if (there < wanted) return false;
  task.members = members;
  task.step = header.sync_step.load();
  task.step_after = memory_.variable(0).step.load() + 1;
  task.done.store(0);
  task.ready.store(0);
  task.active.store(1, std::memory_order_release);
  point();
  run_task();
  return true;
}

void Updater::acknowledge(std::size_t worker, std::uint64_t tail) {
  WorkerState& state = memory_.worker(worker);
  state.tail.store(tail, std::memory_order_release);
  state.done.fetch_add(1);
  if (state.sleeps.load() != 0) futex_wake_all(state.done);
}

void Updater::announce_progress() {
  Header& header = memory_.header();
  header.progress.fetch_add(1);
  if (header.watchers.load() != 0) futex_wake_all(header.progress);
}

}  // namespace rondo::server
