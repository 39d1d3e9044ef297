#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/env/environment.h"

namespace rondo::env {

// Returns whether srun started this process as a task of a job step. Batch scripts and interactive shells
// (salloc) also have the job's variables and SLURM_PROCID=0, but each is a single process, regardless of the
// job's number of tasks.
bool is_slurm_task(const EnvironmentMap& environment);

// Returns whether this process belongs to a Slurm job: a task, a batch script or an interactive shell.
bool is_in_slurm_job(const EnvironmentMap& environment);

// Returns the number of tasks that srun would start from this batch script or interactive shell, if above 1.
// Empty in a task and in a process that mpirun or another launcher started.
std::optional<int> tasks_without_srun(const EnvironmentMap& environment);

// Returns whether Slurm has restarted this job after a pre-emption, a host failure or `scontrol requeue`
// (SLURM_RESTART_COUNT is above 0).
bool is_requeued_slurm_job(const EnvironmentMap& environment);

// Expands Slurm's compressed host list in order: "gnode[10,20,25-27],n[01-03]" gives gnode10, gnode20,
// gnode25, gnode26, gnode27, n01, n02, n03. Several brackets in one name multiply ("r[1-2]n[1-2]"), as in
// Slurm. Throws UsageError naming `what`, the list and the position for malformed text or more than 1,000,000
// hosts.
std::vector<std::string> expand_node_list(std::string_view list, std::string_view what);

// Compresses a host list; the inverse of expand_node_list(). Adjacent names with a common prefix and the same
// number of digits share a bracket. Names must be host names (letters, digits, '-', '.', '_').
std::string compress_node_list(const std::vector<std::string>& hosts);

// Expands Slurm's tasks per node: "2(x3),1" gives 2, 2, 2, 1. Throws UsageError naming `what` and the text.
std::vector<int> expand_tasks_per_node(std::string_view text, std::string_view what);

}  // namespace rondo::env
