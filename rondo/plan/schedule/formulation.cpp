#include "rondo/plan/schedule/formulation.h"

#include <algorithm>
#include <cmath>

#include "rondo/base/text.h"
#include "rondo/plan/schedule/schedules.h"

namespace rondo::plan {
namespace {

using cost::ChoiceCost;
using cost::Job;
using cost::JobKind;
using cost::Strategy;

void append(std::vector<Entry>& entries, const std::vector<Entry>& more) {
  entries.insert(entries.end(), more.begin(), more.end());
}

}  // namespace

Formulation::Formulation(const cost::StepModel& model, std::uint64_t memory_limit, Objective objective,
                         bool with_allocation)
    : model_(model),
      objective_(objective),
      with_allocation_(with_allocation && model.options.buffers == cost::Buffers::unit) {
  // Compute alone is 1000 units of time and the limit is one unit of memory: solvers prefer numbers near one.
  time_unit_ = std::max(model.least_compute_s(), 1e-9) / 1000;
  byte_unit_ = static_cast<double>(std::max<std::uint64_t>(memory_limit, 1));
  program_.name = "rondo plan";
  add_choices();
  add_stalls();
  add_jobs();
  add_once_rows();
  add_reduce_before_gather_rows();
  add_pooled(/*gathers=*/true);
  add_pooled(/*gathers=*/false);
  add_capacity_rows();
  add_behind_update_row();
  if (with_allocation_) add_allocation_rows();
  add_memory_rows(memory_limit);
}

std::size_t Formulation::size_of(const cost::StepModel& model) {
  std::size_t size = 0;
  for (const Job& job : model.jobs)
    size += job.segments > 0 ? static_cast<std::size_t>(job.last - job.first + 1) : 0;
  return size;
}

// x[l,s]: unit l has choice s.
void Formulation::add_choices() {
  const int passes = model_.slots.micro_batches;
  for (int unit = 0; unit < model_.units(); ++unit) {
    const cost::UnitProfile& profile = model_.profile.units[index(unit)];
    Row one{str("one_choice[", profile.name, "]"), 1, 1, {}};
    std::vector<int> columns;
    for (const ChoiceCost& c : model_.choices[index(unit)]) {
      const double compute = (passes * c.backward_s + c.optimizer_s) / time_unit_;
      const double cost = objective_ == Objective::step_time ? compute : -c.communication_s / time_unit_;
      columns.push_back(
          program_.add_column({str("x[", profile.name, ",", describe(c.choice), "]"), cost, 0, 1, true}));
      one.entries.push_back({columns.back(), 1});
    }
    choice_columns_.push_back(std::move(columns));
    program_.add_row(std::move(one));
    if (objective_ == Objective::step_time) program_.constant += passes * profile.forward_s / time_unit_;
  }
}

// e[t]: the stall of compute between slot t and the next.
void Formulation::add_stalls() {
  for (int slot = 0; slot < model_.slots.end(); ++slot)
    stall_columns_.push_back(program_.add_column({str("stall[", slot, "]"), 1, 0, kUnbounded, false}));
}

// Jobs without a buffer whose size depends on the schedule are pooled: only their amounts and deadlines
// count.
bool Formulation::is_pooled(const Job& job) const {
  return job.kind == JobKind::gather_updated || job.kind == JobKind::all_reduce;
}

std::vector<Entry> Formulation::choices_with(int job, double factor, bool pooled) const {
  const int unit = model_.jobs[index(job)].unit;
  const bool is_reduction = model_.jobs[index(job)].kind == JobKind::reduce_scatter;
  std::vector<Entry> entries;
  const auto& choices = model_.choices[index(unit)];
  for (std::size_t c = 0; c < choices.size(); ++c) {
    const bool has = std::find(choices[c].jobs.begin(), choices[c].jobs.end(), job) != choices[c].jobs.end();
    const bool is_zero1 = choices[c].choice.strategy == Strategy::zero1;
    if (has && (!is_reduction || is_zero1 == pooled))
      entries.push_back({choice_columns_[index(unit)][c], factor});
  }
  return entries;
}

// n[j,t]: the fraction of job j that is on the link in slot t.
void Formulation::add_jobs() {
  job_columns_.resize(model_.jobs.size());
  for (std::size_t j = 0; j < model_.jobs.size(); ++j) {
    const Job& job = model_.jobs[j];
    if (job.segments == 0 || is_pooled(job)) continue;
    const std::string& unit = model_.profile.units[index(job.unit)].name;
    for (int slot = job.first; slot <= job.last; ++slot) {
      const int column = program_.add_column(
          {str("n[", name(job.kind), ",", unit, ",", job.micro_batch, ",", slot, "]"), 0, 0, 1, false});
      job_columns_[j].push_back({slot, column});
    }
  }
}

void Formulation::add_once_rows() {
  for (std::size_t j = 0; j < model_.jobs.size(); ++j) {
    if (job_columns_[j].empty()) continue;
    const Job& job = model_.jobs[j];
    Row row{str("communicated_once[", name(job.kind), ",", model_.profile.units[index(job.unit)].name, ",",
                job.micro_batch, "]"),
            0, 0, launched_by(static_cast<int>(j), job.last, 1)};
    append(row.entries, choices_with(static_cast<int>(j), -1, false));
    program_.add_row(std::move(row));
  }
}

// Redundant rows: the optimizer stands between the last reduction and the next step's first gather, so every
// schedule satisfies them. They document this in the model.
void Formulation::add_reduce_before_gather_rows() {
  for (std::size_t g = 0; g < model_.jobs.size(); ++g) {
    const Job& gather = model_.jobs[g];
    if (gather.kind != JobKind::gather_forward || gather.micro_batch != 0) continue;
    for (std::size_t r = 0; r < model_.jobs.size(); ++r) {
      const Job& reduce = model_.jobs[r];
      if (reduce.kind != JobKind::reduce_scatter || reduce.unit != gather.unit ||
          reduce.micro_batch + 1 != model_.slots.micro_batches || job_columns_[r].empty() ||
          job_columns_[g].empty())
        continue;
      Row row{str("reduce_scatter_before_all_gather[", model_.profile.units[index(gather.unit)].name, "]"),
              -kUnbounded, 0, launched_by(static_cast<int>(g), gather.last, 1)};
      append(row.entries, launched_by(static_cast<int>(r), model_.slots.epilogue(), -1));
      program_.add_row(std::move(row));
    }
  }
}

// Jobs without a buffer of their own share one column per slot. Gathers of updated parameters are all ready
// at the start, so only the total due by each slot counts. Gradients of ddp and zero1 have one common
// deadline, so only the total computed by each slot counts.
void Formulation::add_pooled(bool gathers) {
  std::vector<int>& columns = gathers ? pooled_gather_columns_ : pooled_reduce_columns_;
  const std::string what = gathers ? "gather_updated" : "all_reduce";
  for (int slot = 0; slot <= model_.slots.epilogue(); ++slot)
    columns.push_back(program_.add_column({str("pool[", what, ",", slot, "]"), 0, 0, kUnbounded, false}));
  Row total{str("communicated_once[", what, ",all]"), 0, 0, {}};
  // Amounts due before, or ready from, a slot.
  std::vector<std::vector<Entry>> at(index(model_.slots.count()));
  for (std::size_t j = 0; j < model_.jobs.size(); ++j) {
    const Job& job = model_.jobs[j];
    if (job.segments == 0 || (job.kind == JobKind::gather_updated) != gathers) continue;
    if (!is_pooled(job) && job.kind != JobKind::reduce_scatter) continue;
    const std::vector<Entry> chosen = choices_with(static_cast<int>(j), job.seconds() / time_unit_, true);
    append(at[index(gathers ? job.due : job.first)], chosen);
    append(total.entries, chosen);
  }
  if (total.entries.empty()) return;
  for (const int column : columns) total.entries.push_back({column, -1});
  program_.add_row(std::move(total));
  std::vector<Entry> so_far;
  for (int slot = 0; slot <= model_.slots.epilogue(); ++slot) {
    append(so_far, at[index(slot)]);
    if (gathers ? at[index(slot)].empty() : slot == model_.slots.epilogue() || at[index(slot + 1)].empty())
      continue;
    Row row{str(gathers ? "due[" : "released[", what, ",", slot, "]"), gathers ? -kUnbounded : 0,
            gathers ? 0 : kUnbounded, so_far};
    for (int u = 0; u < slot + (gathers ? 0 : 1); ++u) row.entries.push_back({columns[index(u)], -1});
    program_.add_row(std::move(row));
  }
}

// Only updated parameters can overlap the update in slot 0. The link carries all other jobs of slot 0 while
// compute stalls.
void Formulation::add_behind_update_row() {
  Row row{"behind_update",
          -kUnbounded,
          0,
          {{stall_columns_[0], -1}, {pooled_gather_columns_[0], model_.profile.link.contention}}};
  for (std::size_t j = 0; j < model_.jobs.size(); ++j) {
    if (!job_columns_[j].empty() && job_columns_[j].front().slot == cost::Slots::update())
      row.entries.push_back({job_columns_[j].front().column, model_.jobs[j].seconds() / time_unit_});
  }
  program_.add_row(std::move(row));
}

void Formulation::add_capacity_rows() {
  const cost::Slots& slots = model_.slots;
  const double contention = model_.profile.link.contention;
  for (int slot = 0; slot <= slots.epilogue(); ++slot) {
    std::vector<Entry> carried{{pooled_gather_columns_[index(slot)], 1},
                               {pooled_reduce_columns_[index(slot)], 1}};
    for (std::size_t j = 0; j < model_.jobs.size(); ++j) {
      const Job& job = model_.jobs[j];
      if (job_columns_[j].empty() || slot < job.first || slot > job.last) continue;
      carried.push_back({job_columns_[j][index(slot - job.first)].column, job.seconds() / time_unit_});
    }
    Row capacity{str("link[", slot, "]"), -kUnbounded, 0, carried};
    capacity.entries.push_back({stall_columns_[index(slot)], -1});
    if (slot == cost::Slots::update()) {
      for (int unit = 0; unit < model_.units(); ++unit) {
        const auto& choices = model_.choices[index(unit)];
        for (std::size_t c = 0; c < choices.size(); ++c)
          capacity.entries.push_back({choice_columns_[index(unit)][c], -choices[c].optimizer_s / time_unit_});
      }
    } else if (slots.is_compute(slot)) {
      const int unit = slots.unit(slot);
      if (slots.is_forward(slot)) {
        capacity.upper = model_.profile.units[index(unit)].forward_s / time_unit_;
      } else {
        const auto& choices = model_.choices[index(unit)];
        for (std::size_t c = 0; c < choices.size(); ++c)
          capacity.entries.push_back({choice_columns_[index(unit)][c], -choices[c].backward_s / time_unit_});
      }
    }
    program_.add_row(std::move(capacity));
    if (contention <= 0) continue;
    Row slower{str("contention[", slot, "]"), -kUnbounded, 0, {{stall_columns_[index(slot)], -1}}};
    for (const Entry& entry : carried) slower.entries.push_back({entry.column, entry.value * contention});
    if (slot < slots.epilogue()) program_.add_row(std::move(slower));
  }
}

std::vector<Entry> Formulation::launched_by(int job, int slot, double factor) const {
  std::vector<Entry> entries;
  for (const Variable& v : job_columns_[index(job)]) {
    if (v.slot <= slot) entries.push_back({v.column, factor});
  }
  return entries;
}

// Returns memory by the job's variable of add_allocation_rows() if it has one, else by the byte.
std::vector<Entry> Formulation::memory_entries(int job, int slot, int launched_until, double factor) const {
  if (with_allocation_) {
    for (const Variable& v : taken_columns_[index(job)]) {
      if (v.slot == slot) return {{v.column, factor}};
    }
  }
  return launched_by(job, launched_until, factor);
}

// v[j,t]: the unit's buffer is allocated (gathers) or freed (gradients) in slot t, as a whole.
void Formulation::add_allocation_rows() {
  taken_columns_.resize(model_.jobs.size());
  for (std::size_t j = 0; j < model_.jobs.size(); ++j) {
    const Job& job = model_.jobs[j];
    if (job_columns_[j].empty()) continue;
    const int number = static_cast<int>(j);
    const bool is_gather = job.is_gather_buffer();
    const std::string& unit = model_.profile.units[index(job.unit)].name;
    // In its last slot a gather is always allocated as a whole. Gradients have variables for a few slots
    // only; later slots count by the byte, which is less.
    const int end = is_gather ? job.last - 1 : std::min(job.last, job.first + model_.options.prefetch_window);
    for (int slot = job.first; slot <= end; ++slot) {
      const int column = program_.add_column({str(is_gather ? "taken[" : "freed[", name(job.kind), ",", unit,
                                                  ",", job.micro_batch, ",", slot, "]"),
                                              0, 0, 1, true});
      taken_columns_[j].push_back({slot, column});
      // allocated >= launched up to slot; freed <= sent before slot.
      Row row{str(is_gather ? "takes[" : "frees[", unit, ",", job.micro_batch, ",", slot, "]"),
              is_gather ? -kUnbounded : 0, is_gather ? 0 : kUnbounded,
              launched_by(number, is_gather ? slot : slot - 1, 1)};
      row.entries.push_back({column, -1});
      program_.add_row(std::move(row));
    }
  }
}

// Returns the bytes that a choice needs in a slot under any schedule.
double Formulation::fixed_bytes(int unit, std::size_t choice, int slot) const {
  const ChoiceCost& c = model_.choices[index(unit)][choice];
  const cost::UnitProfile& profile = model_.profile.units[index(unit)];
  const cost::Slots& slots = model_.slots;
  const int pass = slots.micro_batch(slot);
  const int forward = slots.forward(pass, unit);
  const int backward = slots.backward(pass, unit);
  double bytes = static_cast<double>(c.persistent_bytes);
  if (slot > slots.backward(0, unit)) bytes += static_cast<double>(c.reduced_bytes);
  if (slot == forward) bytes += static_cast<double>(c.forward_bytes);
  if (slot > forward && slot < backward) bytes += static_cast<double>(c.held_bytes);
  if (slot == backward) bytes += static_cast<double>(c.backward_bytes);
  const Strategy s = c.choice.strategy;
  if (slot == forward || slot == backward || (s == Strategy::zero3_keep && slot > forward && slot < backward))
    bytes += static_cast<double>(c.gathered_bytes);
  if (shards_gradients(s) && slot == backward) bytes += static_cast<double>(profile.gradient_bytes);
  return bytes;
}

void Formulation::add_memory_rows(std::uint64_t memory_limit) {
  const cost::Slots& slots = model_.slots;
  for (int slot = 1; slot < slots.epilogue(); ++slot) {
    Row row{str("memory[", slot, "]"),
            -kUnbounded,
            (static_cast<double>(memory_limit) - static_cast<double>(model_.profile.base_bytes)) / byte_unit_,
            {}};
    for (int unit = 0; unit < model_.units(); ++unit) {
      for (std::size_t c = 0; c < model_.choices[index(unit)].size(); ++c)
        row.entries.push_back({choice_columns_[index(unit)][c], fixed_bytes(unit, c, slot) / byte_unit_});
    }
    for (std::size_t j = 0; j < model_.jobs.size(); ++j) {
      const Job& job = model_.jobs[j];
      if (job_columns_[j].empty()) continue;
      const double bytes = static_cast<double>(job.bytes) / byte_unit_;
      const int number = static_cast<int>(j);
      if (job.is_gather_buffer()) {
        if (slot < job.first || slot > job.last) continue;  // the use itself is in fixed_bytes()
        append(row.entries, memory_entries(number, slot, slot, bytes));
      } else if (slot >= job.first &&
                 !model_.profile.link
                      .parameters_in_place) {  // after the unit's backward: bytes not yet reduced
        append(row.entries, choices_with(number, bytes, false));
        append(row.entries, memory_entries(number, slot, slot - 1, -bytes));
      }
    }
    memory_rows_.push_back(program_.add_row(std::move(row)));
  }
}

// Distributes pooled seconds to the chosen jobs in the order of their deadline (gathers) or readiness
// (reductions).
void Formulation::spread(std::vector<double> amounts, bool gathers, FluidSchedule& schedule) const {
  std::vector<int> chosen;
  for (int unit = 0; unit < model_.units(); ++unit) {
    const cost::UnitChoice choice = schedule.choices[index(unit)];
    for (const int job : model_.cost_of(unit, choice).jobs) {
      const JobKind kind = model_.jobs[index(job)].kind;
      if (gathers ? kind == JobKind::gather_updated
                  : kind == JobKind::all_reduce ||
                        (kind == JobKind::reduce_scatter && choice.strategy == Strategy::zero1))
        chosen.push_back(job);
    }
  }
  std::sort(chosen.begin(), chosen.end(), [&](int a, int b) {
    const Job& left = model_.jobs[index(a)];
    const Job& right = model_.jobs[index(b)];
    return gathers ? left.due < right.due : left.first < right.first;
  });
  std::size_t next = 0;
  double left = chosen.empty() ? 0 : model_.jobs[index(chosen[0])].seconds() / time_unit_;
  for (int slot = 0; slot < static_cast<int>(amounts.size()); ++slot) {
    while (next < chosen.size() && amounts[index(slot)] > 1e-9) {
      const Job& job = model_.jobs[index(chosen[next])];
      if (slot < job.first) break;
      const double part = std::min(left, amounts[index(slot)]);
      schedule.fractions[index(chosen[next])][index(slot)] += part * time_unit_ / job.seconds();
      amounts[index(slot)] -= part;
      left -= part;
      if (left > 1e-9) continue;
      ++next;
      left = next < chosen.size() ? model_.jobs[index(chosen[next])].seconds() / time_unit_ : 0;
    }
  }
}

LinearProgram Formulation::program_for(const std::vector<cost::UnitChoice>& choices) const {
  LinearProgram fixed = program_;
  for (int unit = 0; unit < model_.units(); ++unit) {
    for (std::size_t c = 0; c < model_.choices[index(unit)].size(); ++c) {
      Column& column = fixed.columns[index(choice_columns_[index(unit)][c])];
      const bool is_chosen = model_.choices[index(unit)][c].choice == choices[index(unit)];
      column.lower = column.upper = is_chosen ? 1 : 0;
    }
  }
  return fixed;
}

FluidSchedule Formulation::decode(const std::vector<double>& values) const {
  FluidSchedule schedule;
  for (int unit = 0; unit < model_.units(); ++unit) {
    const auto& columns = choice_columns_[index(unit)];
    const auto best = std::max_element(columns.begin(), columns.end(),
                                       [&](int a, int b) { return values[index(a)] < values[index(b)]; });
    if (values[index(*best)] < 0.999) schedule.is_integral = false;
    schedule.choices.push_back(
        model_.choices[index(unit)][index(static_cast<int>(best - columns.begin()))].choice);
  }
  schedule.fractions.assign(model_.jobs.size(), std::vector<double>(index(model_.slots.count()), 0));
  for (std::size_t j = 0; j < model_.jobs.size(); ++j) {
    for (const Variable& v : job_columns_[j])
      schedule.fractions[j][index(v.slot)] = std::max(0.0, values[index(v.column)]);
  }
  const auto amounts = [&](const std::vector<int>& columns) {
    std::vector<double> result;
    for (const int column : columns) result.push_back(values[index(column)]);
    return result;
  };
  spread(amounts(pooled_gather_columns_), true, schedule);
  spread(amounts(pooled_reduce_columns_), false, schedule);
  return schedule;
}

double Formulation::seconds_per_byte(const std::vector<double>& row_duals) const {
  double total = 0;
  for (const int row : memory_rows_) total += row_duals[index(row)];
  return total * time_unit_ / byte_unit_;
}

}  // namespace rondo::plan
