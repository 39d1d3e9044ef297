#pragma once

#include <string>

#include "rondo/options/declaration.h"
#include "rondo/train/log_target.h"

namespace rondo {

// The log target jsonl.
struct JsonlTarget {
  struct Options {
    std::string file;  // path of the file; empty: epochs.jsonl of the run
  };
  static Declaration declaration() {
    OptionsOf<Options> table;
    table.add("jsonl-file", &Options::file, "File with a JSON object per epoch; default RUN/epochs.jsonl")
        .type = "FILE";
    table.without_flags({"jsonl-file"});
    return {"jsonl", "a file with a JSON object for every epoch", table};
  }
  static LogTarget make(const Options& options, const LoggedRun& run);
};

}  // namespace rondo
