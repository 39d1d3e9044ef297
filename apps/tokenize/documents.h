#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rondo/data/data_files.h"

namespace rondo {

// What a document is in a file.
enum class DocumentForm { file, line, json_line };

// One document; a view of its file, which lives as long as it, or a text of its own.
struct Document {
  std::shared_ptr<const MappedInput> file;
  std::string_view view;
  std::string text = {};  // of JSON lines, whose texts are written with escapes
  std::string_view content() const { return text.empty() ? view : std::string_view(text); }
};

// Gives every document of `files` to `take`, in their order; empty ones are passed over. `field` is that of
// JSON lines. Throws DataError naming file and line for a line that is no JSON object with a text in `field`.
void for_each_document(const std::vector<std::string>& files, DocumentForm form, const std::string& field,
                       const std::function<void(Document)>& take);

}  // namespace rondo
