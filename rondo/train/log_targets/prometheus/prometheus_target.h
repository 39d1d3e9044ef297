#pragma once

#include <string>

#include "rondo/options/declaration.h"
#include "rondo/train/log_target.h"

namespace rondo {

// The target prometheus: a page with the newest figures, which rank 0 serves while the target exists.
struct PrometheusTarget {
  struct Options {
    std::string address = "127.0.0.1:9464";  // [HOST:]PORT; without a host 127.0.0.1, port 0 is a free one
  };
  static Declaration declaration();
  // Says on standard error where the page is. Throws CommunicationError for an address that is taken.
  static LogTarget make(const Options& options, const LoggedRun& run);
};

}  // namespace rondo
