// One rank of a training, started by `rondo train` or by any launcher.
#include <cstdio>

#include "apps/train/flags.h"
#include "apps/train/sample.h"
#include "apps/train/training_run.h"
#include "rondo/launch/error_file.h"
#include "rondo/train/agreement.h"

namespace {

int run(const rondo::TrainFlags& flags) {
  try {
    if (flags.sample) {
      rondo::print_sample(flags);
      return 0;
    }
    return static_cast<int>(rondo::run_training(flags));
  } catch (const rondo::AgreedError& error) {
    if (error.mine_to_report()) {
      rondo::launch::record_failure(error.what());
      std::fprintf(stderr, "rondo train: %s\n", error.what());
    }
    return static_cast<int>(error.exit_code());
  } catch (const std::exception& error) {
    rondo::launch::record_failure(error.what());
    throw;  // reported by the command line
  }
}

}  // namespace

int main(int argc, char** argv) { return rondo::TrainCommandLine().run(argc, argv, run); }
