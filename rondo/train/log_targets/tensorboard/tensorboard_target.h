#pragma once

#include <cstdint>

#include "rondo/options/declaration.h"
#include "rondo/train/log_target.h"

namespace rondo {

// The log target tensorboard.
struct TensorBoardTarget {
  struct Options {
    std::int64_t histograms_every = 0;  // number of steps between histograms; 0: never
  };
  static Declaration declaration() {
    OptionsOf<Options> table;
    table.add("tensorboard-histograms-every", &Options::histograms_every,
              "Steps between histograms of every weight and gradient; 0: never", zero_or_more());
    table.without_flags({"tensorboard-histograms-every"});
    return {"tensorboard", "event files for TensorBoard in the run directory", table};
  }
  static LogTarget make(const Options& options, const LoggedRun& run);
};

}  // namespace rondo
