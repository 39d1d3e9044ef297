#include "rondo/data/tokens.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "rondo/base/arithmetic.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/data/subset.h"

namespace rondo {
namespace {

constexpr std::int64_t kNoTarget = -100;

}  // namespace

TokenWindows::TokenWindows(std::shared_ptr<const TokenSource> tokens, std::int64_t begin, std::int64_t end,
                           const WindowForm& form)
    : tokens_(std::move(tokens)), begin_(begin), end_(end), end_of_document_(form.end_of_document) {
  if (end - begin < form.context + 1) {
    throw DataError(str("'", form.source, "': ", end - begin, " tokens of text, expected at least ",
                        form.context + 1, " (the context and one more)"));
  }
  info_ = {.kind = form.kind,
           .source = form.source,
           .input_shape = {form.context},
           .classes = tokens_->vocabulary(),
           .targets_per_sample = form.context,
           .unit = "tokens"};
}

Batch TokenWindows::get(std::span<const std::int64_t> indices) const {
  check_indices(indices, size());
  const auto samples = static_cast<std::int64_t>(indices.size());
  const std::int64_t context = info_.targets_per_sample;
  Batch batch{.inputs = {at::empty({samples, context}, at::kLong)},
              .targets = {at::empty({samples, context}, at::kLong)},
              .samples = samples};
  auto* input = batch.inputs[0].mutable_data_ptr<std::int64_t>();
  auto* target = batch.targets[0].mutable_data_ptr<std::int64_t>();
  for (const std::int64_t index : indices) {
    const std::int64_t offset = begin_ + index * context;
    tokens_->read(offset, {input, static_cast<std::size_t>(context)});
    std::copy_n(input + 1, context - 1, target);
    tokens_->read(offset + context, {target + context - 1, 1});
    if (end_of_document_) {
      for (std::int64_t i = 0; i < context; ++i) {
        if (input[i] == *end_of_document_) target[i] = kNoTarget;
      }
    }
    input += context;
    target += context;
  }
  return batch;
}

std::vector<std::int64_t> TokenWindows::file_starts() const {
  std::vector<std::int64_t> starts;
  for (const std::int64_t token : tokens_->file_starts()) {
    const std::int64_t within = std::max<std::int64_t>(0, token - begin_);
    starts.push_back(std::min(size(), divide_rounding_up(within, info_.targets_per_sample)));
  }
  starts.back() = size();  // the last window begins before the last tokens
  return without_empty_files(std::move(starts));
}

OpenedData open_windows(const std::shared_ptr<const TokenSource>& tokens, const WindowForm& form,
                        double fraction, const std::string& unit) {
  check_validation_fraction(fraction);
  if (form.context < 1)
    throw UsageError(str("the context is ", form.context, " ", unit, ", expected at least 1"));
  const std::int64_t size = tokens->size(), window = form.context + 1;
  std::int64_t validation = 0;
  if (fraction > 0.0)
    validation = std::max<std::int64_t>(std::llround(static_cast<double>(size) * fraction), window);
  if (size - validation < window) {
    throw DataError(str("'", form.source, "' has ", size, " ", unit, " of text, expected at least ",
                        validation == 0 ? window : 2 * window, ": ", window, " (the context of ",
                        form.context, " ", unit, " and one more)",
                        validation == 0 ? "" : " for training and as many for validation",
                        ". Use more text, a shorter context or a smaller validation fraction"));
  }
  const std::int64_t cut = size - validation;
  OpenedData opened{.kind = form.kind, .train = nullptr, .validation = nullptr};
  opened.train = std::make_shared<TokenWindows>(tokens, 0, cut, form);
  if (validation > 0) opened.validation = std::make_shared<TokenWindows>(tokens, cut, size, form);
  return opened;
}

namespace {

using TokenJson = nlohmann::ordered_json;

constexpr const char* kTokenFormat = "rondo tokens";
constexpr std::int64_t kTokenFormatVersion = 1;

class DescriptionReader {
 public:
  explicit DescriptionReader(const std::filesystem::path& path)
      : path_(path.string()), document_(read_json_file(path)) {}

  TokenDescription read() const {
    const TokenJson& whole = document_;
    if (!whole.is_object() || text(whole, "format") != kTokenFormat)
      throw DataError(str(path_, ": \"format\" is not \"", kTokenFormat, "\""));
    if (const std::int64_t version = integer(whole, "version", 1); version != kTokenFormatVersion) {
      throw DataError(str(path_, ": version ", version, "; this rondo reads version ", kTokenFormatVersion));
    }
    TokenDescription result;
    result.type = text(whole, "type");
    if (result.type != "uint16" && result.type != "uint32")
      throw DataError(str(path_, ": \"type\" is \"", result.type, "\", expected uint16 or uint32"));
    result.vocabulary = integer(whole, "vocabulary", 1, most_tokens(result.type));
    if (whole.contains("end_of_document") && !whole["end_of_document"].is_null())
      result.end_of_document = integer(whole, "end_of_document", 0, result.vocabulary - 1);
    result.tokenizer = text(whole, "tokenizer");
    result.documents = integer(whole, "documents", 0);
    for (const TokenJson& each : entry(whole, "shards")) {
      const TokenDescription::Shard shard{text(each, "file"), integer(each, "tokens", 0)};
      // A shard must be in the folder of its description, even in a hostile file.
      if (shard.file.empty() || shard.file.find('/') != std::string::npos || shard.file.starts_with('.'))
        throw DataError(str(path_, ": shard '", shard.file, "' is no name of a file in the same folder"));
      result.shards.push_back(shard);
    }
    if (result.shards.empty()) throw DataError(str(path_, ": no shards"));
    return result;
  }

 private:
  const TokenJson& entry(const TokenJson& object, const char* key) const {
    if (object.is_object()) {
      const auto found = object.find(key);
      if (found != object.end()) return *found;
    }
    throw DataError(str(path_, ": \"", key, "\" is missing"));
  }
  std::string text(const TokenJson& object, const char* key) const {
    const TokenJson& value = entry(object, key);
    if (!value.is_string())
      throw DataError(str(path_, ": \"", key, "\" is ", value.dump(), ", expected a text"));
    return value.get<std::string>();
  }
  std::int64_t integer(const TokenJson& object, const char* key, std::int64_t low,
                       std::int64_t high = INT64_MAX) const {
    return json_integer(entry(object, key), str(path_, ": \"", key, "\""), low, high);
  }

  std::string path_;
  TokenJson document_;
};

}  // namespace

std::size_t bytes_per_token(const std::string& type) { return type == "uint16" ? 2 : 4; }

std::int64_t most_tokens(const std::string& type) { return std::int64_t{1} << 8 * bytes_per_token(type); }

nlohmann::ordered_json to_json(const TokenDescription& description) {
  TokenJson shards = TokenJson::array();
  for (const TokenDescription::Shard& shard : description.shards)
    shards.push_back({{"file", shard.file}, {"tokens", shard.tokens}});
  const TokenJson end = description.end_of_document ? TokenJson(*description.end_of_document) : TokenJson();
  return {{"format", kTokenFormat},
          {"version", kTokenFormatVersion},
          {"type", description.type},
          {"vocabulary", description.vocabulary},
          {"end_of_document", end},
          {"tokenizer", description.tokenizer},
          {"documents", description.documents},
          {"shards", std::move(shards)}};
}

TokenDescription read_token_description(const std::filesystem::path& path) {
  return DescriptionReader(path).read();
}

namespace {

namespace fs = std::filesystem;

// Token files and their description.
struct FoundTokens {
  TokenDescription description;
  std::vector<std::string> train, validation;  // paths
};

// Copies tokens into a wider type; returns the largest.
template <class Narrow>
std::int64_t widen(const std::uint8_t* from, std::span<std::int64_t> to) {
  const auto* tokens = reinterpret_cast<const Narrow*>(from);  // aligned: whole tokens of a mapped file
  Narrow largest = 0;
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i] = tokens[i];
    largest = std::max(largest, tokens[i]);
  }
  return largest;
}

std::vector<std::string> bin_files(const fs::path& folder) {
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const bool is_hidden = entry.path().filename().string().starts_with('.');
    if (!is_hidden && entry.is_regular_file() && entry.path().extension() == ".bin")
      found.push_back(entry.path().string());
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool is_named(const std::string& path, const char* beginning) {
  return fs::path(path).filename().string().starts_with(beginning);
}

void sort_by_use(const std::vector<std::string>& files, FoundTokens& found) {
  for (const std::string& file : files) {
    if (is_named(file, "val")) {
      found.validation.push_back(file);
    } else if (is_named(file, "train")) {
      found.train.push_back(file);
    }
  }
  if (!found.train.empty()) return;
  found.train = files;
  found.validation.clear();
}

FoundTokens find_described(const fs::path& description, const std::string& only) {
  FoundTokens found{.description = read_token_description(description), .train = {}, .validation = {}};
  for (const TokenDescription::Shard& shard : found.description.shards) {
    const fs::path path = description.parent_path() / shard.file;
    if (!only.empty() && path.filename() != only) continue;
    const std::uintmax_t wanted =
        static_cast<std::uintmax_t>(shard.tokens) * bytes_per_token(found.description.type);
    if (const std::uintmax_t size = fs::file_size(path); size != wanted) {
      throw DataError(str("'", path.string(), "' has ", size, " bytes; ", description.string(), " says ",
                          shard.tokens, " tokens of ", found.description.type, ", ", wanted, " bytes"));
    }
    found.train.push_back(path.string());
  }
  return found;
}

// Returns the tokens.json for `path`: in the folder, or next to the file if it lists the file. Empty if there
// is none.
fs::path description_of(const std::string& path) {
  const bool is_folder = fs::is_directory(path);
  const fs::path description =
      (is_folder ? fs::path(path) : fs::path(path).parent_path()) / kTokenDescription;
  if (!fs::exists(description)) return {};
  if (is_folder) return description;
  const TokenDescription known = read_token_description(description);
  const std::string name = fs::path(path).filename();
  const bool names_it = std::any_of(known.shards.begin(), known.shards.end(),
                                    [&](const TokenDescription::Shard& shard) { return shard.file == name; });
  return names_it ? description : fs::path();
}

// Throws UsageError if a flag contradicts the description.
void check_against(const TokenDescription& known, const fs::path& description, const TokenOptions& options) {
  const auto check = [&](const char* flag, const auto& given, const auto& said) {
    if (!given || (said && *given == *said)) return;
    throw UsageError(str(flag, " ", *given, ": ", description.string(), " says ",
                         said ? std::to_string(*said) : "none", "; leave the flag out"));
  };
  check("vocabulary-size", options.vocabulary, std::optional(known.vocabulary));
  check("eos-token-id", options.end_of_document, known.end_of_document);
}

// Throws UsageError if flags contradict each other.
void check_options(const TokenOptions& options) {
  const std::int64_t vocabulary = *options.vocabulary;
  if (const std::int64_t most = most_tokens(options.type); vocabulary > most) {
    throw UsageError(str("vocabulary-size ", vocabulary, ": token-type ", options.type, " holds ", most,
                         " different tokens",
                         options.type == "uint16" ? "; give token-type uint32, or fewer tokens" : ""));
  }
  if (options.end_of_document && *options.end_of_document >= vocabulary) {
    throw UsageError(str("eos-token-id ", *options.end_of_document, ": expected a token below ", vocabulary,
                         ", the vocabulary-size"));
  }
}

FoundTokens find_tokens(const std::string& path, const TokenOptions& options) {
  const bool is_folder = fs::is_directory(path);
  if (const fs::path description = description_of(path); !description.empty()) {
    FoundTokens found = find_described(description, is_folder ? "" : fs::path(path).filename().string());
    check_against(found.description, description, options);
    return found;
  }
  FoundTokens found;
  if (!options.vocabulary) {
    throw UsageError(str(
        "'", path, "' has no ", kTokenDescription,
        ", so the number of different tokens must be given: set TokenOptions::vocabulary (vocabulary-size)"));
  }
  check_options(options);
  found.description.type = options.type;
  found.description.vocabulary = *options.vocabulary;
  found.description.end_of_document = options.end_of_document;
  sort_by_use(is_folder ? bin_files(path) : std::vector{path}, found);
  if (found.train.empty()) throw DataError(str("'", path, "' has no files named *.bin, expected tokens"));
  return found;
}

bool detect_tokens(const std::string& path) {
  try {
    return (fs::is_directory(path) || path.ends_with(".bin")) && !description_of(path).empty();
  } catch (const DataError&) {
    return fs::is_directory(path);  // it has a tokens.json; open() reports the error in it
  }
}

OpenedData open_tokens(const std::string& path, const DataOptions& options, const TokenOptions& own) {
  const FoundTokens found = find_tokens(path, own);
  const TokenDescription& known = found.description;
  WindowForm form{.kind = "tokens", .source = path, .context = options.context};
  if (own.boundaries == "masked") {
    if (!known.end_of_document) {
      throw UsageError(str("document boundaries masked: it is unknown which token of '", path,
                           "' ends a document; set TokenOptions::end_of_document (eos-token-id)"));
    }
    form.end_of_document = known.end_of_document;
  }
  const auto source = [&](const std::vector<std::string>& files) {
    return std::make_shared<const TokenFiles>(files, known.type, known.vocabulary);
  };
  const double fraction = found.validation.empty() ? options.validation_fraction : 0.0;
  OpenedData opened = open_windows(source(found.train), form, fraction, "tokens");
  if (!found.validation.empty())
    opened.validation = open_windows(source(found.validation), form, 0.0, "tokens").train;
  return opened;
}

// Returns whether a file looks like tokens of 4 bytes: every second 16-bit number is below `upper_end`, which
// does not occur in text of 2-byte tokens, and not all of the others are.
bool looks_wider(std::span<const std::uint8_t> bytes, std::uint32_t upper_end) {
  constexpr std::size_t kLeast = 64, kJudged = 4096;  // number of 4-byte tokens
  const std::size_t tokens = std::min(kJudged, bytes.size() / 4);
  if (bytes.size() % 4 != 0 || tokens < kLeast) return false;
  bool any_lower = false;
  for (std::size_t i = 0; i < tokens; ++i) {
    std::uint32_t token = 0;
    std::memcpy(&token, bytes.data() + 4 * i, sizeof token);
    if (token >> 16 >= upper_end) return false;
    any_lower = any_lower || (token & 0xFFFF) >= upper_end;
  }
  return any_lower;
}

// Throws DataError if the beginning of a file shows that it contains something else.
void check_content(const MappedInput& file, const std::string& type) {
  constexpr std::string_view kNumpy = "\x93NUMPY";
  if (file.text().starts_with(kNumpy)) {
    throw DataError(str("'", file.path(),
                        "', offset 0: the header of a NumPy file, expected tokens from the first "
                        "byte on (numpy.load(...).tofile(...) writes such a file)"));
  }
  constexpr std::uint32_t kUpperEnd = 4;  // for tokens below 262,144, which covers all known vocabularies
  if (type == "uint16" && looks_wider(file.bytes(), kUpperEnd)) {
    throw DataError(
        str("'", file.path(), "', offset 2: every second number of 2 bytes is below ", kUpperEnd,
            ", so these are tokens of 4 bytes; expected tokens of uint16 (give token-type uint32)"));
  }
}

}  // namespace

TokenFiles::TokenFiles(const std::vector<std::string>& paths, const std::string& type,
                       std::int64_t vocabulary)
    : starts_{0}, width_(bytes_per_token(type)), vocabulary_(vocabulary) {
  for (const std::string& path : paths) {
    const MappedInput& file = files_.emplace_back(path);
    const std::size_t bytes = file.bytes().size();
    if (bytes % width_ != 0) {
      throw DataError(str("'", path, "', offset ", bytes - bytes % width_, ": the file ends after ",
                          bytes % width_, " bytes of a token, expected whole tokens of ", type));
    }
    check_content(file, type);
    starts_.push_back(starts_.back() + static_cast<std::int64_t>(bytes / width_));
  }
  if (starts_.back() == 0)
    throw DataError(str("'", paths.empty() ? "" : paths.front(), "' is empty, expected tokens"));
  // Detects a wrong width or vocabulary here instead of during training.
  constexpr std::int64_t kChecked = 65536;
  std::vector<std::int64_t> tokens;
  for (std::size_t i = 0; i + 1 < starts_.size(); ++i) {
    tokens.resize(static_cast<std::size_t>(std::min(kChecked, starts_[i + 1] - starts_[i])));
    read(starts_[i], tokens);
  }
}

void TokenFiles::read(std::int64_t offset, std::span<std::int64_t> tokens) const {
  // Finds the last file that starts at or before the position; empty files share their start with the next
  // one.
  auto file = static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end() - 1, offset) -
                                       starts_.begin() - 1);
  while (!tokens.empty()) {
    const auto within = static_cast<std::size_t>(offset - starts_[file]) * width_;
    const std::span<const std::uint8_t> bytes = files_[file].bytes().subspan(within);
    const std::span<std::int64_t> part = tokens.first(std::min(tokens.size(), bytes.size() / width_));
    const std::int64_t largest =
        width_ == 2 ? widen<std::uint16_t>(bytes.data(), part) : widen<std::uint32_t>(bytes.data(), part);
    if (largest >= vocabulary_) {
      const auto at = std::find(part.begin(), part.end(), largest) - part.begin();
      throw DataError(str("'", files_[file].path(), "', offset ",
                          within + static_cast<std::size_t>(at) * width_, ": token ", largest,
                          ", expected 0 to ", vocabulary_ - 1, " (is the type of tokens right?)"));
    }
    tokens = tokens.subspan(part.size());
    offset += static_cast<std::int64_t>(part.size());
    ++file;
  }
}

bool TokensKind::detect(const std::string& /*name*/, const std::string& path) { return detect_tokens(path); }

OpenedData TokensKind::open(const std::string& /*name*/, const std::string& path, const DataOptions& options,
                            const Options& own) {
  return open_tokens(path, options, own);
}

}  // namespace rondo
