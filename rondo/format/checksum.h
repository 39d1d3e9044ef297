#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

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

}  // namespace rondo
