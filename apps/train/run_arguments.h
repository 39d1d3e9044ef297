#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "apps/train/trained_run.h"

namespace rondo {

// Which trained model a program uses, and on what: arguments that evaluate, predict and export share.
struct RunArguments {
  std::string run_dir;
  std::string checkpoint;
  std::string model;
  std::string data;
  std::string data_kind;
  std::string device = "auto";

  void add_model_flags(CLI::App& app);
  void add_data_flags(CLI::App& app, const std::string& help_of_data);
  static void add_batch_size_flag(CLI::App& app, std::int64_t& batch_size);
  // open_run(). What stands under --data is all for the model to judge.
  TrainedRun open(bool needs_data) const;
};

}  // namespace rondo
