#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rondo/base/time.h"

namespace rondo::bench {

// A child process that is spoken to in lines, through its standard input and output; standard error is ours.
// It dies with this process, and with this object. One thread uses an object.
class ChildProcess {
 public:
  // `name` is for messages. `environment` is added to ours. `processor`, when given, is the only one it may
  // use. Throws Error when the program cannot be started.
  ChildProcess(std::string name, const std::vector<std::string>& command,
               const std::map<std::string, std::string>& environment, std::optional<int> processor);
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  void write_line(const std::string& text);
  // The next line, without its end. Throws Error naming the child when it ends or says nothing until the
  // deadline.
  std::string read_line(Deadline deadline);

 private:
  std::string describe_end();

  std::string name_;
  pid_t pid_ = -1;
  int input_ = -1;   // written by us
  int output_ = -1;  // read by us
  std::string buffer_;
};

}  // namespace rondo::bench
