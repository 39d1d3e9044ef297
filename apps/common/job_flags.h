#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "apps/common/flag_checks.h"
#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine_factories.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/launch/host_resources.h"

namespace rondo {

// Adds `--backend` with the values of `rondo train`: a rondo engine with options in brackets, or an engine of
// a shared module. `engine` holds the default.
inline CLI::Option* add_engine_flag(CLI::App& app, std::string& engine) {
  return app
      .add_option(
          "--backend", engine,
          "Communication engine, with options in brackets, such as hierarchical(native, gloo, window=8)")
      ->check(accepted_by([](const std::string& text) { check_engine(text, "engine", declared_engines()); }))
      ->capture_default_str();
}

// Adds `--nproc-per-node` with the values of `rondo run`: a number of at least `least`, cpu, gpu or auto.
// `processes` holds the default.
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
