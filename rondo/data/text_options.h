#pragma once

#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// The option of the kinds csv, regression and labelled_text.
struct LabelColumnOption {
  std::string label_column = {};  // its name, or its number from 0; empty: the kind's own
};
// The flag --label-column.
inline OptionsOf<LabelColumnOption> label_column_table() {
  OptionsOf<LabelColumnOption> table;
  table.begin_group("Data");
  table.add("label-column", &LabelColumnOption::label_column,
            "Name or number of the label column; default the last of tables, the first of labelled_text");
  return table;
}

// The option of the kinds text and masked_text.
struct ExtensionsOption {
  // Reads only files of a directory with these endings (".txt"); empty: every file that looks like text.
  std::vector<std::string> extensions = {};
};
// The flag --extensions.
inline OptionsOf<ExtensionsOption> extensions_table() {
  OptionsOf<ExtensionsOption> table;
  table.begin_group("Data");
  table.add("extensions", &ExtensionsOption::extensions,
            "Only files with these endings, as txt,md; default all text files");
  return table;
}

// The options of the kind text.
struct TextOptions : ExtensionsOption {
  std::string tokenizer_file = {};  // a tokenizer.json (byte_pairs.h); empty: tokens are bytes
};

// The kind text: a file or a directory of it. Validation is the tail of the text: validation_fraction of its
// tokens, at least one window. See data_kinds.h.
struct TextKind {
  using Options = TextOptions;  // of kind text
  // The name, summary and flags of kind text, without libtorch.
  static std::vector<Declaration> declarations() {
    OptionsOf<TextOptions> table;
    table.begin_group("Data");
    table.include(extensions_table());
    table.add("tokenizer", &TextOptions::tokenizer_file,
              "A tokenizer.json of byte pairs (GPT-2, Llama, Qwen); default: tokens are bytes",
              path_to_read());
    return {{"text", "files and directories, byte by byte or by a tokenizer, for gpt", table}};
  }
  // Whether the content at `path` is of the kind; never throws for content that it does not understand.
  static bool detect(const std::string& name, const std::string& path);
  // As open_data(), with the kind's own options.
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

}  // namespace rondo
