#pragma once

#include <cstdint>

#include "rondo/base/time.h"

namespace rondo {

// Adds the time until its end to a sum: computation stands still.
class ExposedTime {
 public:
  explicit ExposedTime(std::int64_t& sum) : sum_(sum), begin_(monotonic_ns()) {}
  ~ExposedTime() { sum_ += monotonic_ns() - begin_; }
  ExposedTime(const ExposedTime&) = delete;
  ExposedTime& operator=(const ExposedTime&) = delete;

 private:
  std::int64_t& sum_;
  std::int64_t begin_;
};

}  // namespace rondo
