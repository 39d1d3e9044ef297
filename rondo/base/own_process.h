#pragma once

#include <cstdint>

namespace rondo {

// The process in which the object was made, told from the children that are forked from it later. Threads and
// locked mutexes of the parent do not work there. Costs no system call.
class OwnProcess {
 public:
  OwnProcess();

  // False in a child that was forked after the object was made. Any thread.
  bool is_current() const noexcept;

 private:
  std::uint64_t forks_;
};

}  // namespace rondo
