#pragma once

namespace rondo::env {

// Environment variable with a directory in this host's memory that outlives the job's ranks: the launcher
// makes it for a job that it may start again, and removes it when the job ends. Not set: there is none.
inline constexpr const char* kJobMemoryVariable = "RONDO_JOB_MEMORY";

}  // namespace rondo::env
