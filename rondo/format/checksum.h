#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

struct XXH3_state_s;

namespace rondo {

// An XXH3-128 checksum (xxhash.com) of a byte stream. Detects damage at memory speed; does not protect
// against forgery.
class Checksum {
 public:
  Checksum();
  void update(std::span<const std::byte> data);
  // Returns the checksum of everything so far, as 32 lower-case hexadecimal digits (the format of xxh128sum).
  std::string hex() const;

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

// Returns the checksum of one block.
std::string checksum_hex(std::span<const std::byte> data);

// A background thread that adds bytes to two checksums, of a file and of a tensor in it, while the caller
// uses the same bytes. The thread starts with the first large block and sleeps between blocks. Not
// thread-safe.
class ChecksumThread {
 public:
  ChecksumThread();
  ~ChecksumThread();
  ChecksumThread(const ChecksumThread&) = delete;
  ChecksumThread& operator=(const ChecksumThread&) = delete;

  // Starts adding `data` to both checksums. The bytes and the checksums must not be touched until wait()
  // returns. Small blocks are processed synchronously.
  void begin(std::span<const std::byte> data, Checksum& file, Checksum& tensor);
  void wait();

 private:
  struct Worker;
  std::unique_ptr<Worker> worker_;
  bool waits_ = false;
};

// A manifest's record of a tensor, to identify a damaged one.
struct TensorRecord {
  std::string name;
  std::uint64_t bytes = 0;
  std::string checksum;  // XXH3-128 of the tensor's elements
};

// A manifest's record of a file.
struct FileRecord {
  std::string name;  // relative to the checkpoint directory
  std::uint64_t bytes = 0;
  std::string checksum;  // XXH3-128 of the whole file
  std::vector<TensorRecord> tensors;
  // XXH3-128 of the bytes before the first tensor; empty if unknown. Together with the tensors' checksums it
  // covers the file, so that several threads can compare one file.
  std::string header_checksum = {};
};

}  // namespace rondo
