#pragma once

#include <string>
#include <vector>

#include "rondo/options/option_table.h"

namespace rondo {

// Options that several kinds of data take, each declared once.

// Of kinds csv, regression and labelled_text.
struct LabelColumnOption {
  std::string label_column = {};  // its name, or its number from 0; empty: the kind's own
};
// Of kinds text and masked_text.
struct ExtensionsOption {
  // Of a directory only files with these endings (".txt"); empty: every file that looks like text.
  std::vector<std::string> extensions = {};
};

OptionsOf<LabelColumnOption> label_column_table();  // --label-column
OptionsOf<ExtensionsOption> extensions_table();     // --extensions

}  // namespace rondo
