#include "rondo/data/text.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/byte_pairs.h"
#include "rondo/data/text_files.h"

namespace rondo {
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
  // The last file that starts at or before the position; empty files share their start with the next one.
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
