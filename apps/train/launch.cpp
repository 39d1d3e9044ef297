#include "apps/train/launch.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "apps/common/matmul_setup.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/environment.h"
#include "rondo/env/identity.h"
#include "rondo/launch/job.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

std::string worker_program() {
  const std::string path = fs::read_symlink("/proc/self/exe").parent_path() / "rondo-train-worker";
  if (access(path.c_str(), X_OK) != 0) throw Error(str("cannot start ", path, ": ", errno_text(errno)));
  return path;
}

// A launcher or scheduler has made this process one rank of several.
bool is_a_rank() {
  const env::EnvironmentMap environment = env::process_environment();
  return env::started_by_launcher(environment) || env::discover(environment).world_size > 1;
}

int become(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<char*> words = {const_cast<char*>(program.c_str())};
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  execv(program.c_str(), words.data());
  throw Error(str("cannot start ", program, ": ", errno_text(errno)));
}

// The result that a rank writes for standard output must not carry the launcher's "[rank 0]", so it takes a
// file's way.
class ResultFile {
 public:
  ResultFile() : path_((fs::temp_directory_path() / "rondo-result-XXXXXX").string()) {
    const int descriptor = mkstemp(path_.data());
    if (descriptor < 0) throw Error(str("cannot make ", path_, ": ", errno_text(errno)));
    close(descriptor);
  }
  ~ResultFile() {
    std::error_code ignored;
    fs::remove(path_, ignored);
  }
  ResultFile(const ResultFile&) = delete;
  ResultFile& operator=(const ResultFile&) = delete;
  const std::string& path() const { return path_; }
  void print() const {
    std::ifstream file(path_);
    for (std::string line; std::getline(file, line);) std::cout << line << '\n';
    std::cout << std::flush;
  }

 private:
  std::string path_;
};

launch::Binding binding_of(const std::string& name) {
  if (name == "core") return launch::Binding::core;
  return name == "numa" ? launch::Binding::numa : launch::Binding::none;
}

}  // namespace

int start_training(const TrainFlags& flags, const std::vector<std::string>& arguments) {
  const std::string program = worker_program();
  // Forward and backward run on two threads with an OpenMP team each; a team that spins after its work takes
  // the cores from the other (6 times the processor time for a small model on two cores).
  setenv("OMP_WAIT_POLICY", "PASSIVE", /*overwrite=*/0);
  const bool is_one_of_several = is_a_rank();
  // Ranks of another launcher would measure all at once, each in the others' way: they take what is kept.
  if (!is_one_of_several || flags.matmul != "auto") prepare_matmul(flags.matmul);
  if (flags.sample || flags.nproc_per_node == 1 || is_one_of_several) return become(program, arguments);

  batch_size_per_rank(flags, flags.nproc_per_node);  // refuses what cannot be before anything starts
  if (strategy_name(flags, flags.nproc_per_node) == "one_device") {
    throw UsageError(
        str("--strategy one_device trains on one process, but --nproc-per-node is ", flags.nproc_per_node));
  }
  launch::RunOptions options;
  options.processes = flags.nproc_per_node;
  options.binding = binding_of(flags.bind_to);
  options.command = {program};
  options.command.insert(options.command.end(), arguments.begin(), arguments.end());
  if (flags.json != "-") return launch::run_job(options);

  const ResultFile result;
  options.command.push_back("--json=" + result.path());
  const int exit_code = launch::run_job(options);
  result.print();
  return exit_code;
}

}  // namespace rondo
