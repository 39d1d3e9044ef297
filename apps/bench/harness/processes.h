#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/time.h"
#include "rondo/launch/scratch.h"

// Child processes of benchmarks: rondo's own, and those of peers.
namespace rondo::bench {

// The processor and network of a child process.
struct ChildPlace {
  std::optional<int> processor = {};          // the only processor that the child may use
  std::optional<int> network_namespace = {};  // a descriptor, for a child on an emulated host
};

// A child process that reads commands and writes answers line by line, through its standard input and output.
// It inherits standard error. It ends with this process, and with this object. Not thread-safe.
class ChildProcess {
 public:
  // Starts the program. `name` is for messages; `environment` is added to this process's environment. Throws
  // Error if the program cannot be started.
  ChildProcess(std::string name, const std::vector<std::string>& command,
               const std::map<std::string, std::string>& environment, const ChildPlace& place);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void write_line(const std::string& text);
  // Returns the next line without its line end. Throws Error naming the child if it ends, or writes nothing
  // before the deadline.
  std::string read_line(Deadline deadline);
  // Reads a line and parses it as JSON.
  nlohmann::ordered_json read_json(Deadline deadline);
  // Returns true if read_line() would have data within `wait`.
  bool answers_within(Duration wait) const;
  pid_t pid() const { return pid_; }

 private:
  std::string describe_end();

  std::string name_;
  pid_t pid_ = -1;
  int input_ = -1;   // the child's standard input, written by this process
  int output_ = -1;  // the child's standard output, read by this process
  std::string buffer_;
};

// Runs the command to its end and discards its standard output. Throws Error if it fails.
void run_to_end(const std::vector<std::string>& command);

// Runs `body` in one process per rank and returns rank 0's result. See rondo::spawn().
nlohmann::ordered_json spawn_for_json(int ranks, const std::function<nlohmann::ordered_json(int rank)>& body);

// Return the path of this program, and of another program beside it.
std::filesystem::path own_program();
std::filesystem::path program_beside(const std::string& name);

// Returns a directory that is removed with the object. Throws Error if none can be created.
launch::ScratchDirectory make_scratch();

// Returns the Python for PyTorch peers: $RONDO_PYTHON, else .venv of the source tree that this program was
// built from, else python3.
std::string python();

// Returns `wanted` if PyTorch is available; otherwise prints the reason to standard error and returns false.
bool peers_take_part(bool wanted);

// Returns the path of a peer's script: in bench/peers of the source tree, or in share/rondo/bench/peers
// beside an installed program. Throws Error if neither exists.
std::string peer_script(const std::string& name);

}  // namespace rondo::bench
