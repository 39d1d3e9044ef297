#pragma once

#include <string>

#include "apps/bench/collectives/exercise.h"

namespace rondo::bench {

// An average of float32 values through a codec, with error feedback as in training (an average, so that
// running it again and again on one buffer keeps the numbers in range). Correct is: within the codec's
// documented error.
Exercise make_coded_all_reduce(const std::string& codec, const c10::intrusive_ptr<c10d::Backend>& backend,
                               Bytes bytes);

}  // namespace rondo::bench
