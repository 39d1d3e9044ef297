#include "rondo/data/text_options.h"

namespace rondo {

std::vector<Declaration> TextKind::declarations() {
  OptionsOf<TextOptions> table;
  table.begin_group("Data");
  table.include(extensions_table());
  table.add("tokenizer", &TextOptions::tokenizer_file,
            "A tokenizer.json of byte pairs (GPT-2, Llama, Qwen); default: tokens are bytes", path_to_read());
  return {{"text", "files and directories, byte by byte or by a tokenizer, for gpt", table}};
}

}  // namespace rondo
