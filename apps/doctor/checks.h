#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace doctor {

enum class State { ok, missing, warning, broken };

// One line of the report.
struct Finding {
  std::string section;  // "libtorch", "backends", ...
  std::string name;     // "gloo"
  State state = State::ok;
  std::string detail;   // result of the check
  std::string get;      // remedy if the state is not ok
  nlohmann::json data;  // machine-readable form; an object or null
};

using Findings = std::vector<Finding>;

// Returns "ok", "missing", "warning" or "broken". Only "broken" makes the doctor exit with 1: rondo cannot
// train.
const char* to_string(State state);

}  // namespace doctor

// One function per section of the report. None throws for a problem that it finds.
namespace doctor {

// Checks libtorch: path, version, CUDA, and whether it loads. Looks in `directory` if not empty, else in the
// folder that rondo was built with.
Findings check_libtorch(const std::string& directory);
// Checks that the dynamic linker finds the libraries of all of rondo's programs beside this one.
Findings check_programs();
// Checks the engines native, gloo, mpi and nccl. `libtorch` is the result of check_libtorch().
Findings check_backends(const Findings& libtorch);
// Reports the kernels for float32 matrix products. Measures them if this machine has no measurement, libtorch
// loads and is the one that rondo was built with.
Findings check_matmul(const Findings& libtorch);
// Checks cores, NUMA nodes, memory and its limits, GPUs.
Findings check_machine();
// Checks the GPUs with their memory, and the driver.
Finding check_gpus();
// Checks limits of shared memory, and of the descriptors and files that it needs.
Findings check_shared_memory();
Findings check_network();
// Checks launchers and schedulers: installed programs, and this process's environment variables.
Findings check_schedulers();

// Returns the path of `program` in PATH, or an empty text.
std::string which(const std::string& program);
// Returns the first line of a file, or an empty text.
std::string first_line(const std::string& path);

}  // namespace doctor
