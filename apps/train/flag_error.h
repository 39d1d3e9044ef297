#pragma once

#include <string>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

// Returns the result of `use`, which uses the value of `flag`. A library function that `use` calls knows no
// flags: its UsageError is thrown with the flag and its value in front.
template <class Use>
auto use_flag(const std::string& flag, const std::string& value, const Use& use) {
  try {
    return use();
  } catch (const UsageError& error) {
    throw UsageError(str(flag, " ", value, ": ", error.what()));
  }
}

}  // namespace rondo
