#pragma once

#include <string>

#include "finding.h"

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
