#pragma once

#include <string>

#include "rondo/options/declaration.h"
#include "rondo/train/log_target.h"

namespace rondo {

// The log target csv.
struct CsvTarget {
  struct Options {
    std::string file;  // path of the file; empty: epochs.csv of the run
  };
  static Declaration declaration() {
    OptionsOf<Options> table;
    table.add("csv-file", &Options::file, "CSV file with a row per epoch; default RUN/epochs.csv").type =
        "FILE";
    table.without_flags({"csv-file"});
    return {"csv", "a CSV file with a row for every epoch", table};
  }
  static LogTarget make(const Options& options, const LoggedRun& run);
};

}  // namespace rondo
