#include "rondo/data/csv_options.h"

namespace rondo {

std::vector<Declaration> CsvKind::declarations() {
  return {{"csv", "a table of numbers with a class for each row", label_column_table()},
          {"regression", "a table of numbers with a number to predict for each row", label_column_table()}};
}

}  // namespace rondo
