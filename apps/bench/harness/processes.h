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

// Processes that benchmarks start: their own, and those of peers.
namespace rondo::bench {

// The place where a child process runs.
struct ChildPlace {
  std::optional<int> processor = {};          // the only one it may use
  std::optional<int> network_namespace = {};  // a descriptor, for a child on an emulated host
};

// A child process that reads commands and writes answers line by line, through its standard input and output;
// standard error is that of this process. It dies with this process, and with this object. One thread uses an
// object.
class ChildProcess {
 public:
  // `name` is for messages. `environment` is added to this process's own. Throws Error when the program
  // cannot be started.
  ChildProcess(std::string name, const std::vector<std::string>& command,
               const std::map<std::string, std::string>& environment, const ChildPlace& place);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void write_line(const std::string& text);
  // Returns the next line without its end. Throws Error naming the child when it ends, or writes nothing
  // until the deadline.
  std::string read_line(Deadline deadline);
  // read_line() of a line of JSON.
  nlohmann::ordered_json read_json(Deadline deadline);
  // Returns whether read_line() would find something to read within `wait`.
  bool answers_within(Duration wait) const;
  pid_t pid() const { return pid_; }

 private:
  std::string describe_end();

  std::string name_;
  pid_t pid_ = -1;
  int input_ = -1;   // written by this process
  int output_ = -1;  // read by this process
  std::string buffer_;
};

// Runs the command to its end; its standard output is not shown. Throws Error when it fails.
void run_to_end(const std::vector<std::string>& command);

// Runs `body` in as many processes as ranks and returns what rank 0's returned. See rondo::spawn().
nlohmann::ordered_json spawn_for_json(int ranks, const std::function<nlohmann::ordered_json(int rank)>& body);

// Returns the path of this program, and of another beside it.
std::filesystem::path own_program();
std::filesystem::path program_beside(const std::string& name);

// Returns a directory that is removed at the end. Throws Error when none can be made.
launch::ScratchDirectory make_scratch();

// Returns the Python that runs PyTorch peers: $RONDO_PYTHON, else .venv of the source tree that this program
// was built from, else python3.
std::string python();

// Returns `wanted` if PyTorch can take part here; otherwise says why not on standard error and returns false.
bool peers_take_part(bool wanted);

// Returns the path of a peer's script: in bench/peers of the source tree, or in share/rondo/bench/peers
// beside an installed program. Throws Error when it is in neither.
std::string peer_script(const std::string& name);

}  // namespace rondo::bench
