#pragma once

#include <unistd.h>

#include <utility>

namespace rondo::launch {

// Owns a file descriptor. Move-only.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() { reset(); }

  int number() const { return number_; }
  // Gives it up: the caller closes it.
  int release() { return std::exchange(number_, -1); }
  bool valid() const { return number_ >= 0; }
  void reset() {
    if (number_ >= 0) close(std::exchange(number_, -1));
  }

 private:
  int number_ = -1;
};

struct Pipe {
  Descriptor read_end;
  Descriptor write_end;
};

// A pipe that programs started later do not inherit. Throws Error.
Pipe make_pipe();

// Opens /dev/null as standard input, output or error where this program was started without one, so that no
// pipe takes that number.
void ensure_standard_streams();

// Makes reads of `descriptor` return at once when there is nothing.
void set_nonblocking(int descriptor);

}  // namespace rondo::launch
