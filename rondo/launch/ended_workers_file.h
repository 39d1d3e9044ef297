#pragma once

#include <string>

#include "rondo/launch/descriptor.h"

namespace rondo::launch {

// The launcher's side of env::EndedWorkers: a file without a name with a byte for each worker process. Of one
// attempt.
class EndedWorkersFile {
 public:
  // Throws Error when no file can be made.
  explicit EndedWorkersFile(int workers);
  // For env::kEndedWorkersVariable.
  std::string path() const;
  // Notes that worker process `worker` has ended for good. Others than workers are not noted.
  void note(int worker) const;

 private:
  int workers_;
  Descriptor file_;
};

}  // namespace rondo::launch
