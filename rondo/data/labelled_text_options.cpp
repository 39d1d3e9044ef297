#include "rondo/data/labelled_text_options.h"

namespace rondo {

std::vector<Declaration> LabelledTextKind::declarations() {
  return {{"labelled_text", "texts with a class each, for bert", label_column_table()}};
}

}  // namespace rondo
