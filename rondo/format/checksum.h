#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct XXH3_state_s;

namespace rondo {

// XXH3-128 (xxhash.com) over a stream of bytes: detects damage at memory speed. Not a defence against
// forgery.
class Checksum {
 public:
  Checksum();
  void update(std::span<const std::byte> data);
  // 32 lower-case hexadecimal digits, as xxh128sum prints them, of everything so far.
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// Of one block.
std::string checksum_hex(std::span<const std::byte> data);

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

// What a manifest remembers of a tensor, to tell which one is damaged.
struct TensorRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::string checksum;  // XXH3-128 of its elements
};

// What a manifest remembers of a file.
struct FileRecord {
  std::string name;  // relative to the checkpoint directory
  std::uint64_t bytes = 0;
  std::string checksum;  // XXH3-128 of the whole file
  std::vector<TensorRecord> tensors;
  // XXH3-128 of what stands before the first tensor; empty where it is not known. With those of the tensors
  // it covers the file, so that several threads can compare one.
  std::string header_checksum = {};
};

}  // namespace rondo
