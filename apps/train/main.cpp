// `rondo train`: understands the command line and starts the training, see launch.h.
#include "apps/train/flags.h"
#include "apps/train/launch.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return rondo::TrainCommandLine().run(
      argc, argv, [&](const rondo::TrainFlags& flags) { return rondo::start_training(flags, arguments); });
}
