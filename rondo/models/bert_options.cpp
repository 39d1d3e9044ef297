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
  table.add("vocabulary", &Options::vocabulary, "vocab.txt; default that of --init", path_to_read());
  table.add("cased", &Options::cased, "The vocabulary has capitals and accents");
  return table;
}

}  // namespace

std::vector<Declaration> BertFamily::declarations() {
  const OptionsOf<BertOptions> table = bert_table();
  return {{"bert", "BERT's base size, for classes of texts or hidden tokens", table},
          {"bert-tiny", "the smallest of BERT's published sizes", table}};
}

}  // namespace rondo
