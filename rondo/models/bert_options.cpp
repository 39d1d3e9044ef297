#include "rondo/models/bert_options.h"

namespace rondo {
namespace {

OptionsOf<BertOptions> bert_table() {
  using Options = BertOptions;
  OptionsOf<Options> table;
  table.begin_group("Model");
  table.include(transformer_table());
  table.add("task", &Options::task, "classify labelled text, or mlm: predict hidden tokens; default classify",
            one_of({"classify", "mlm"}));
  table.include(init_table());
  table.include(vocabulary_table());
  return table;
}

}  // namespace

std::vector<Declaration> BertFamily::declarations() {
  const OptionsOf<BertOptions> table = bert_table();
  return {{"bert", "BERT's base size, for classes of texts or hidden tokens", table},
          {"bert-tiny", "the smallest of BERT's published sizes", table}};
}

}  // namespace rondo
