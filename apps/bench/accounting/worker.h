#pragma once

#include <cstdint>
#include <string>

namespace rondo::bench {

struct AccountingWorker {
  std::string model;            // a gpt, a name for make_model
  std::int64_t batch_size = 4;  // samples
  bool accounts = false;
};

// Trains on one process and thread. Says {"ready": true}, and then answers each line "N" on standard input
// with the milliseconds of N steps, {"step_ms": [...]}, until the input ends.
void train_for_accounting(const AccountingWorker& options);

}  // namespace rondo::bench
