#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "apps/common/flag_checks.h"
#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine_folders.h"

namespace rondo {

// Adds `--backend`, which takes what that of `rondo train` takes: an engine of rondo's with its options in
// brackets, or one of a shared module. `engine` holds the default.
inline CLI::Option* add_engine_flag(CLI::App& app, std::string& engine) {
  return app
      .add_option("--backend", engine,
                  "Communication engine, with its options in brackets: hierarchical(native, gloo, window=8)")
      ->check(accepted_by([](const std::string& text) { check_engine(text, "engine", declared_engines()); }))
      ->capture_default_str();
}

}  // namespace rondo
