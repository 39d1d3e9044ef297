#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/launch/host_resources.h"

namespace rondo {

// Adds `--nproc-per-node`, which takes what that of `rondo run` takes: a number from `least` on, cpu, gpu or
// auto. `processes` holds the default.
inline CLI::Option* add_process_flag(CLI::App& app, int& processes, int least = 1) {
  static constexpr int kMost = 1024;
  const auto read = [&processes, least](const std::string& text) {
    const int count = launch::process_count(text, "--nproc-per-node");
    if (count < least || count > kMost) {
      throw UsageError(
          str("--nproc-per-node ", text, " (", count, " processes) is not between ", least, " and ", kMost));
    }
    processes = count;
  };
  return app
      .add_option_function<std::string>("--nproc-per-node", read, "Start this many processes on this host")
      ->type_name("N|auto|cpu|gpu")
      ->default_str(std::to_string(processes));
}

}  // namespace rondo
