#pragma once

#include <optional>

#include "rondo/env/environment.h"

namespace rondo::env {

// Whether srun started this process as a task of a job step. A batch script has the job's variables and
// SLURM_PROCID=0 as well, and so has an interactive shell (salloc): each is one process, whatever the job's
// number of tasks.
bool is_slurm_task(const EnvironmentMap& environment);

// Whether this process belongs to a Slurm job: a task, a batch script or an interactive shell.
bool is_in_slurm_job(const EnvironmentMap& environment);

// Number of tasks that srun would start in this batch script or interactive shell, when there are several.
// Empty in a task, and in a process that mpirun or another launcher started.
std::optional<int> tasks_without_srun(const EnvironmentMap& environment);

// Whether Slurm has started this job before, and again after a pre-emption, a failure of a host or a
// `scontrol requeue` (SLURM_RESTART_COUNT is above 0).
bool is_requeued_slurm_job(const EnvironmentMap& environment);

}  // namespace rondo::env
