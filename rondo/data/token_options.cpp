#include "rondo/data/token_options.h"

namespace rondo {

std::vector<Declaration> TokensKind::declarations() {
  OptionsOf<TokenOptions> table;
  table.begin_group("Data");
  table.add("token-type", &TokenOptions::type, "Of token files without a tokens.json: how a token is stored",
            one_of({"uint16", "uint32"}));
  table.add("vocabulary-size", &TokenOptions::vocabulary,
            "Of token files without a tokens.json: how many different tokens there are", above_zero());
  table.add("eos-token-id", &TokenOptions::end_of_document,
            "Of token files without a tokens.json: the token behind every document", zero_or_more());
  table.add("document-boundaries", &TokenOptions::boundaries,
            "Whether the first token of a document is predicted from the one before, or masked",
            one_of({"masked", "predicted"}));
  table.without_flags({"token-type", "vocabulary-size", "eos-token-id", "document-boundaries"});
  return {{"tokens", "files of tokens, mapped: what rondo tokenize writes, for gpt", table}};
}

}  // namespace rondo
