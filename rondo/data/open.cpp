#include "rondo/data/open.h"

#include <algorithm>
#include <filesystem>
#include <functional>

#include "rondo/base/error.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/data/data_files.h"
#include "rondo/data/data_kinds.h"
#include "rondo/data/word_piece.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

struct DataKind {
  std::string name;
  std::function<bool(const std::string& path)> detect;
  std::function<OpenedData(const std::string& path, const DataOptions& options)> open;
};

// Returns all kinds in the order of detection.
const std::vector<DataKind>& kinds() {
  static const std::vector<DataKind> all = [] {
    std::vector<DataKind> found;
    for_each_data_kind([&](auto kind) {
      using Kind = decltype(kind);
      for (const Declaration& declared : Kind::declarations()) {
        found.push_back(
            {.name = declared.name,
             .detect = [name = declared.name](const std::string& path) { return Kind::detect(name, path); },
             .open =
                 [name = declared.name](const std::string& path, const DataOptions& options) {
                   return Kind::open(name, path, options, options.of_kind.get<typename Kind::Options>());
                 }});
      }
    });
    return found;
  }();
  return all;
}

void check_present(const std::string& path) {
  if (path.empty()) throw UsageError("the path of the data is empty, expected a file or directory");
  if (fs::is_directory(path)) {
    if (fs::is_empty(path)) throw DataError(str("directory '", path, "' is empty, expected data"));
    return;
  }
  const MappedInput file(path);
  if (file.bytes().empty()) throw DataError(str("'", path, "' is empty, expected data"));
  if (file.bytes().size() >= 2 && file.bytes()[0] == 0x1f && file.bytes()[1] == 0x8b) {
    throw DataError(
        str("'", path, "', offset 0: the file is compressed, expected plain data; unpack it: gunzip ", path));
  }
}

const DataKind& choose(const std::string& kind, const std::string& path) {
  for (const DataKind& candidate : kinds()) {
    if (kind == "auto" ? candidate.detect(path) : candidate.name == kind) return candidate;
  }
  if (kind == "auto") {
    throw DataError(str("cannot tell what kind of data '", path, "' is: not ", join(data_kinds(), ", "),
                        ". If it is one of them, name the kind (--data-kind) to see what is wrong with it"));
  }
  throw UsageError(str("unknown kind of data '", kind, "', expected auto, ", join(data_kinds(), ", ")));
}

const DataKind& choose_present(const std::string& kind, const std::string& path) {
  if (kind != "auto") choose(kind, path);  // reports an unknown kind before a wrong path
  check_present(path);
  return choose(kind, path);
}

// Converts file system errors to DataErrors about `path`.
template <class Read>
auto reading(const std::string& path, Read read) {
  try {
    return read();
  } catch (const fs::filesystem_error& error) {
    throw DataError(str("cannot read '", path, "': ", error.code().message()));
  }
}

// Throws DataError for class names that are not UTF-8: they are stored as JSON.
void check_class_names(const DatasetInfo& info) {
  for (const std::string& name : info.class_names) {
    if (!is_utf8(name))
      throw DataError(str("'", info.source, "': the class '", printable(name),
                          "' is not UTF-8; convert the file (iconv -t UTF-8), or rename its folder"));
  }
}

}  // namespace

std::vector<std::string> data_kinds() {
  std::vector<std::string> names;
  for (const DataKind& kind : kinds()) names.push_back(kind.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::shared_ptr<const WordPiece> open_tokenizer(const DataOptions& options) {
  if (options.vocabulary_file.empty()) {
    throw UsageError(
        "text in WordPiece's tokens needs a vocabulary: set DataOptions::vocabulary_file (--vocabulary "
        "vocab.txt, "
        "or of a bert --from-pretrained with a folder that has one)");
  }
  return std::make_shared<const WordPiece>(
      WordPiece::from_file(options.vocabulary_file, {.lower_case = options.lower_case}));
}

OpenedData open_data(const std::string& kind, const std::string& path, const DataOptions& options) {
  return reading(path, [&] {
    OpenedData opened = choose_present(kind, path).open(path, options);
    check_class_names(opened.train->info());
    return opened;
  });
}

std::string find_data_kind(const std::string& kind, const std::string& path) {
  return reading(path, [&] { return choose_present(kind, path).name; });
}

}  // namespace rondo
