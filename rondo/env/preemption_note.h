#pragma once

namespace rondo::env {

// Environment variable with the path of a file that a worker creates when it ends because it was pre-empted,
// with its state saved. Without the file, exit code 3 is one like others to the launcher. Not set: nobody
// looks.
inline constexpr const char* kPreemptionFileVariable = "RONDO_PREEMPTION_FILE";

// Creates that file, where the environment names one. Any thread.
void note_preemption() noexcept;

}  // namespace rondo::env
