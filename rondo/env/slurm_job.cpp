#include "rondo/env/slurm_job.h"

#include <charconv>

#include "rondo/env/settings.h"

namespace rondo::env {
namespace {

// Steps from here on are Slurm's own: of a batch script (0xfffffffb), of an interactive shell (0xfffffffa).
constexpr unsigned long long kFirstOwnStep = 0xfffffff0;

}  // namespace

bool is_slurm_task(const EnvironmentMap& environment) {
  if (!lookup(environment, "SLURM_PROCID")) return false;
  auto step = lookup(environment, "SLURM_STEP_ID");
  if (!step) step = lookup(environment, "SLURM_STEPID");
  if (!step) return false;
  unsigned long long number = 0;
  std::from_chars(step->data(), step->data() + step->size(), number);
  return number < kFirstOwnStep;
}

bool is_in_slurm_job(const EnvironmentMap& environment) {
  return lookup(environment, "SLURM_JOB_ID").has_value();
}

std::optional<int> tasks_without_srun(const EnvironmentMap& environment) {
  const bool is_started = lookup(environment, "RANK") || lookup(environment, "OMPI_COMM_WORLD_RANK") ||
                          lookup(environment, "PMI_RANK");
  if (is_started || is_slurm_task(environment) || !is_in_slurm_job(environment)) return std::nullopt;
  const auto tasks = integer_variable(environment, "SLURM_NTASKS");
  return tasks && *tasks > 1 ? tasks : std::nullopt;
}

bool is_requeued_slurm_job(const EnvironmentMap& environment) {
  return is_in_slurm_job(environment) && integer_variable(environment, "SLURM_RESTART_COUNT").value_or(0) > 0;
}

}  // namespace rondo::env
