#include "apps/tokenize/documents.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

Document document_of_json(std::string_view line, const std::string& where, const std::string& field) {
  const nlohmann::ordered_json object = parse_json_strict(line, where);
  if (!object.is_object() || !object.contains(field) || !object[field].is_string())
    throw DataError(str(where, ": expected an object with a text named \"", field, "\""));
  return {.file = nullptr, .view = {}, .text = object[field].get<std::string>()};
}

}  // namespace

void for_each_document(const std::vector<std::string>& files, DocumentForm form, const std::string& field,
                       const std::function<void(Document)>& take) {
  for (const std::string& path : files) {
    const auto file = std::make_shared<const MappedInput>(path);
    std::string_view text = file->text();
    if (form == DocumentForm::file) {
      if (!text.empty()) take({.file = file, .view = text});
      continue;
    }
    for (std::int64_t number = 1; !text.empty(); ++number) {
      std::string_view line = text.substr(0, text.find('\n'));
      text.remove_prefix(std::min(text.size(), line.size() + 1));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (trim(line).empty()) continue;
      Document document{.file = file, .view = line};
      if (form == DocumentForm::json_line)
        document = document_of_json(line, str("'", path, "', line ", number), field);
      if (!document.content().empty()) take(std::move(document));
    }
  }
}

}  // namespace rondo
