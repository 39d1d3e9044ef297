#pragma once

#include <string>

#include "rondo/options/declaration.h"
#include "rondo/train/log_target.h"

namespace rondo {

// The log target prometheus: a page with the newest metrics, which rank 0 serves during the target's
// lifetime.
struct PrometheusTarget {
  struct Options {
    std::string address = "127.0.0.1:9464";  // [HOST:]PORT; without a host 127.0.0.1, port 0 is a free one
  };
  static Declaration declaration();
  // Prints the page's address to standard error. Throws CommunicationError if the address is in use.
  static LogTarget make(const Options& options, const LoggedRun& run);
};

}  // namespace rondo
