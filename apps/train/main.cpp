// `rondo train`: understands the command line and starts the training, see launch.h.
#include "apps/train/launch.h"
#include "apps/train/stop_signals.h"
#include "apps/train/train_command_line.h"

int main(int argc, char** argv) {
  rondo::end_on_stop_signals();
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return rondo::TrainCommandLine(rondo::built_in_choices())
      .run(argc, argv,
           [&](const rondo::TrainFlags& flags) { return rondo::start_training(flags, arguments); });
}
