#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/time.h"

namespace rondo::bench {

// Where a child process runs.
struct ChildPlace {
  std::optional<int> processor = {};          // the only one it may use
  std::optional<int> network_namespace = {};  // a descriptor, for a child on an emulated host
};

// A child process that is spoken to in lines, through its standard input and output; standard error is ours.
// It dies with this process, and with this object. One thread uses an object.
class ChildProcess {
 public:
  // `name` is for messages. `environment` is added to ours. Throws Error when the program cannot be started.
  ChildProcess(std::string name, const std::vector<std::string>& command,
               const std::map<std::string, std::string>& environment, const ChildPlace& place);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void write_line(const std::string& text);
  // The next line, without its end. Throws Error naming the child when it ends or says nothing until the
  // deadline.
  std::string read_line(Deadline deadline);
  // Whether read_line would find something to read within `wait`.
  bool answers_within(Duration wait) const;
  pid_t pid() const { return pid_; }

 private:
  std::string describe_end();

  std::string name_;
  pid_t pid_ = -1;
  int input_ = -1;   // written by us
  int output_ = -1;  // read by us
  std::string buffer_;
};

}  // namespace rondo::bench
