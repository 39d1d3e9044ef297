#include "rondo/data/shared_data_options.h"

namespace rondo {

OptionsOf<LabelColumnOption> label_column_table() {
  OptionsOf<LabelColumnOption> table;
  table.begin_group("Data");
  table.add("label-column", &LabelColumnOption::label_column,
            "Name or number of the label column; default the last of tables, the first of labelled_text");
  return table;
}

OptionsOf<ExtensionsOption> extensions_table() {
  OptionsOf<ExtensionsOption> table;
  table.begin_group("Data");
  table.add("extensions", &ExtensionsOption::extensions,
            "Only files with these endings, as txt,md; default all text files");
  return table;
}

}  // namespace rondo
