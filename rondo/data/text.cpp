#include "rondo/data/text.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"
#include "rondo/data/byte_pairs.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// Counts of skipped files, for the error message.
struct Census {
  int binary = 0;
  int other_endings = 0;
  int empty = 0;
};

bool has_ending(const std::string& name, const std::vector<std::string>& extensions) {
  return std::any_of(extensions.begin(), extensions.end(), [&](const std::string& ending) {
    return name.ends_with(ending.starts_with('.') ? ending : "." + ending);
  });
}

bool file_looks_like_text(const fs::path& path) {
  const RegularFile file(path);
  std::array<char, 8192> head;
  const ssize_t count = ::read(file.descriptor(), head.data(), head.size());
  if (count < 0) throw DataError(str("cannot read '", path.string(), "': ", errno_text(errno)));
  return looks_like_text({head.data(), static_cast<std::size_t>(count)});
}

bool wanted(const fs::directory_entry& entry, const std::vector<std::string>& extensions, Census& census) {
  if (entry.file_size() == 0) {
    ++census.empty;
    return false;
  }
  if (!extensions.empty()) {
    if (has_ending(entry.path().filename().string(), extensions)) return true;
    ++census.other_endings;
    return false;
  }
  if (file_looks_like_text(entry.path())) return true;
  ++census.binary;
  return false;
}

std::vector<std::string> search(const std::string& path, const std::vector<std::string>& extensions) {
  std::vector<std::string> found;
  Census census;
  for (fs::recursive_directory_iterator entry(path), end; entry != end; ++entry) {
    if (entry->path().filename().string().starts_with('.')) {
      if (entry->is_directory()) entry.disable_recursion_pending();
      continue;
    }
    if (entry->is_regular_file() && wanted(*entry, extensions, census))
      found.push_back(entry->path().string());
  }
  if (found.empty()) {
    throw DataError(str("no text in directory '", path, "': it has ", census.binary, " binary files, ",
                        census.empty, " empty ones and ", census.other_endings, " with other endings than ",
                        extensions.empty() ? "asked for" : join(extensions, ", ")));
  }
  // Directory order differs between file systems, but every rank must read the same text.
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

bool looks_like_text(std::string_view head) { return head.find('\0') == std::string_view::npos; }

std::vector<std::string> find_text_files(const std::string& path,
                                         const std::vector<std::string>& extensions) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  try {
    return search(path, extensions);
  } catch (const fs::filesystem_error& failure) {
    throw DataError(str("cannot read directory '", path, "': ", failure.code().message()));
  }
}

namespace {

bool detect_text(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return true;
  return looks_like_text(MappedInput(path).text().substr(0, 8192));
}

OpenedData open_text(const std::string& path, const DataOptions& options, const TextOptions& own) {
  std::optional<BytePairs> tokenizer;
  if (!own.tokenizer_file.empty()) tokenizer = BytePairs::from_file(own.tokenizer_file);
  const auto corpus = std::make_shared<const TextCorpus>(find_text_files(path, own.extensions),
                                                         tokenizer ? &*tokenizer : nullptr);
  return open_windows(corpus, {.kind = "text", .source = path, .context = options.context},
                      options.validation_fraction, tokenizer ? "tokens" : "bytes");
}

}  // namespace

TextCorpus::TextCorpus(const std::vector<std::string>& paths, const BytePairs* tokenizer) : starts_{0} {
  if (tokenizer != nullptr) {
    vocabulary_ = tokenizer->size();
    for (const std::string& path : paths) {
      const MappedInput file(path);
      const std::vector<std::int32_t> tokens = tokenizer->encode(file.text());
      tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
      starts_.push_back(tokens_.size());
    }
  }
  for (const std::string& path : tokenizer != nullptr ? std::vector<std::string>() : paths) {
    files_.emplace_back(path);
    starts_.push_back(starts_.back() + files_.back().bytes().size());
  }
  if (starts_.back() == 0) {
    throw DataError(str("'", paths.empty() ? "" : paths.front(), "' is empty, expected text"));
  }
}

void TextCorpus::read(std::int64_t offset, std::span<std::int64_t> tokens) const {
  auto position = static_cast<std::size_t>(offset);
  if (!tokens_.empty()) {
    std::copy_n(tokens_.begin() + offset, tokens.size(), tokens.begin());
    return;
  }
  // Finds the last file that starts at or before the position; empty files share their start with the next
  // one.
  auto file = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), position) -
                                       starts_.begin() - 1);
  std::size_t done = 0;
  while (done < tokens.size()) {
    const std::span<const std::uint8_t> bytes = files_[file].bytes().subspan(position - starts_[file]);
    const std::size_t count = std::min(bytes.size(), tokens.size() - done);
    std::copy_n(bytes.begin(), count, tokens.begin() + static_cast<std::ptrdiff_t>(done));
    done += count;
    position += count;
    ++file;
  }
}

bool TextKind::detect(const std::string& /*name*/, const std::string& path) { return detect_text(path); }

OpenedData TextKind::open(const std::string& /*name*/, const std::string& path, const DataOptions& options,
                          const Options& own) {
  return open_text(path, options, own);
}

}  // namespace rondo
