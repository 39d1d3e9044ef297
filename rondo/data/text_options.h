#pragma once

#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// Options of the kinds csv, regression and labelled_text.
struct LabelColumnOption {
  std::string label_column = {};  // name, or number from 0; empty: the kind's default
};
// Returns the table with the flag --label-column.
inline OptionsOf<LabelColumnOption> label_column_table() {
  OptionsOf<LabelColumnOption> table;
  table.begin_group("Data");
  table.add("label-column", &LabelColumnOption::label_column,
            "Name or number of the label column; default: last (labelled_text: first)");
  return table;
}

// Options of the kinds text and masked_text.
struct ExtensionsOption {
  // Extensions (".txt") of the files to read in a directory; empty: all files that look like text.
  std::vector<std::string> extensions = {};
};
// Returns the table with the flag --extensions.
inline OptionsOf<ExtensionsOption> extensions_table() {
  OptionsOf<ExtensionsOption> table;
  table.begin_group("Data");
  table.add("extensions", &ExtensionsOption::extensions,
            "File extensions to read, such as txt,md; default: all text files");
  return table;
}

// Options of the kind text.
struct TextOptions : ExtensionsOption {
  std::string tokenizer_file = {};  // path of a tokenizer.json (byte_pairs.h); empty: tokens are bytes
};

// The kind text: a text file or a directory of text files. Validation is the tail of the text:
// validation_fraction of its tokens, at least one window. See data_kinds.h.
struct TextKind {
  using Options = TextOptions;  // options of kind text
  // Returns the name, summary and flags of kind text, without libtorch.
  static std::vector<Declaration> declarations() {
    OptionsOf<TextOptions> table;
    table.begin_group("Data");
    table.include(extensions_table());
    table.add("tokenizer", &TextOptions::tokenizer_file,
              "A byte-pair tokenizer.json (GPT-2, Llama, Qwen); default: one token per byte", path_to_read());
    return {{"text", "files and directories, byte by byte or by a tokenizer, for gpt", table}};
  }
  // Returns whether the content at `path` is of the kind. Does not throw for unknown content.
  static bool detect(const std::string& name, const std::string& path);
  // Like open_data(), with the kind's own options.
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
