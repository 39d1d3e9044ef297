#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "rondo/format/checksum.h"

namespace rondo {

// Adds bytes to two checksums, of a file and of a tensor in it, while the caller does something else with the
// same bytes. Its thread begins with the first large block and sleeps between blocks. One thread uses an
// object.
class ChecksumThread {
 public:
  ChecksumThread();
  ~ChecksumThread();
  ChecksumThread(const ChecksumThread&) = delete;
  ChecksumThread& operator=(const ChecksumThread&) = delete;

  // The bytes and both checksums stay untouched until wait() returns. Small blocks are done at once.
  void begin(std::span<const std::byte> data, Checksum& file, Checksum& tensor);
  void wait();

 private:
  struct Worker;
  std::unique_ptr<Worker> worker_;
  bool waits_ = false;
};

}  // namespace rondo
