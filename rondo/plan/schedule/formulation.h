#pragma once

#include <cstdint>
#include <vector>

#include "rondo/plan/solver/linear_model.h"
#include "rondo/simulate/step_simulator.h"

namespace rondo::plan {

enum class Objective {
  step_time,  // the time of a step
  overlap     // communication hidden behind compute, as in the literature
};

// A decoded solution of the solver: the fraction of each job that is on the link during each slot.
struct FluidSchedule {
  std::vector<cost::UnitChoice> choices;       // the choice with the largest value of each unit
  bool is_integral = true;                     // every unit has one choice
  std::vector<std::vector<double>> fractions;  // by job and slot
};

// The planning problem as a mixed-integer program (README.md has it in full). Segments are divisible, so
// its optimum is a lower bound of every plan's step time in the simulator.
class Formulation {
 public:
  // `with_allocation` adds a binary variable for each gather and slot. A unit's whole buffer is then
  // allocated with its first byte, as with Buffers::unit.
  Formulation(const cost::StepModel& model, std::uint64_t memory_limit, Objective objective,
              bool with_allocation);

  // Estimates the number of variables of a model's program without building it.
  static std::size_t size_of(const cost::StepModel& model);

  const LinearProgram& program() const { return program_; }
  // Returns the program of the best schedule for given choices.
  LinearProgram program_for(const std::vector<cost::UnitChoice>& choices) const;
  FluidSchedule decode(const std::vector<double>& values) const;
  // Converts an objective of the program to seconds.
  double seconds(double objective) const { return objective * time_unit_; }
  // Converts seconds to an objective of the program.
  double objective(double seconds) const { return seconds / time_unit_; }
  // Returns the change of the step time per byte of memory, in seconds, from the relaxation's duals.
  double seconds_per_byte(const std::vector<double>& row_duals) const;

 private:
  struct Variable {
    int slot = 0;
    int column = 0;
  };

  void add_choices();
  void add_stalls();
  void add_jobs();
  void add_once_rows();
  void add_reduce_before_gather_rows();
  void add_pooled(bool gathers);
  void add_capacity_rows();
  void add_behind_update_row();
  void add_memory_rows(std::uint64_t memory_limit);
  void add_allocation_rows();
  bool is_pooled(const cost::Job& job) const;
  // Returns entries of the unit's choices that have this job. Reductions of zero1 are pooled, others are not.
  std::vector<Entry> choices_with(int job, double factor, bool pooled) const;
  // Columns up to and including a slot.
  std::vector<Entry> launched_by(int job, int slot, double factor) const;
  std::vector<Entry> memory_entries(int job, int slot, int launched_until, double factor) const;
  double fixed_bytes(int unit, std::size_t choice, int slot) const;
  void spread(std::vector<double> amounts, bool gathers, FluidSchedule& schedule) const;

  const cost::StepModel& model_;
  Objective objective_;
  bool with_allocation_;
  double time_unit_ = 1;
  double byte_unit_ = 1;
  LinearProgram program_;
  std::vector<std::vector<int>> choice_columns_;      // by unit and choice
  std::vector<int> stall_columns_;                    // by slot
  std::vector<std::vector<Variable>> job_columns_;    // by job: fractions by slot
  std::vector<std::vector<Variable>> taken_columns_;  // by job: allocated (gather), freed (reduction)
  std::vector<int> pooled_gather_columns_;            // by slot, in units of time
  std::vector<int> pooled_reduce_columns_;
  std::vector<int> memory_rows_;
};

}  // namespace rondo::plan
