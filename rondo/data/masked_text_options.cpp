#include "rondo/data/masked_text_options.h"

namespace rondo {

std::vector<Declaration> MaskedTextKind::declarations() {
  return {{"masked_text", "texts with hidden tokens, for bert", extensions_table()}};
}

}  // namespace rondo
