#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "apps/train/flag_set.h"

namespace rondo {

// Returns the flags of the training that a run directory's config.json describes, overridden by `given`.
// Throws UsageError as the command line does; with `needs_data` also for missing --data.
TrainFlags flags_of_run(const FlagSet& set, const std::string& run_dir, const OptionValues& given,
                        bool needs_data);

// The command line of `rondo train`, with the configuration file (--config, or with --resume the run's own)
// underneath: flags on the command line override those in the file.
class TrainCommandLine {
 public:
  explicit TrainCommandLine(TrainChoices choices);

  // Parses the command line. For help or an error, prints it and returns the exit code. Otherwise runs `body`
  // with the flags and returns its exit code; exceptions become exit codes as in run_command_line.
  int run(int argc, const char* const* argv, const std::function<int(const TrainFlags&)>& body);

 private:
  std::string value_of(const std::string& name) const;
  TrainFlags understand() const;

  FlagSet flags_;
  CLI::App app_;
};

}  // namespace rondo
