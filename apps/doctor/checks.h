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
  std::string detail;   // what was found
  std::string get;      // what to do or type when it is not ok
  nlohmann::json data;  // the same for programs; an object or null
};

using Findings = std::vector<Finding>;

// "ok", "missing", "warning" or "broken". Only "broken" makes the doctor exit with 1: rondo cannot train so.
const char* to_string(State state);

}  // namespace doctor

// One function per section of the report. None throws for what it finds.
namespace doctor {

// libtorch: where, version, CUDA, and whether it can be loaded. `directory` is looked into instead of the one
// that rondo was built with, unless empty.
Findings check_libtorch(const std::string& directory);
// Whether the dynamic linker finds the libraries of every program of rondo beside this one.
Findings check_programs();
// The engines native, gloo, mpi and nccl. `libtorch` is what check_libtorch found.
Findings check_backends(const Findings& libtorch);
// Which kernels multiply float32 matrices; measures them when that was not done on this machine, where
// libtorch loads and is the one that rondo was built with.
Findings check_matmul(const Findings& libtorch);
// Cores, NUMA nodes, memory and their limits, GPUs.
Findings check_machine();
// The cards with their memory, and the driver.
Finding check_gpus();
// What bounds shared memory, and the descriptors and files it needs.
Findings check_shared_memory();
Findings check_network();
// Launchers and schedulers: installed programs, and what the environment says of this process.
Findings check_schedulers();

// Path of `program` in PATH, or an empty text.
std::string which(const std::string& program);
// First line of a file, or an empty text.
std::string first_line(const std::string& path);

}  // namespace doctor
