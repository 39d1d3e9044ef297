// `rondo tokenize`: converts texts to files of tokens for `rondo train --data-kind tokens`.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <thread>

#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/tokenize/shards.h"
#include "rondo/base/error.h"
#include "rondo/base/stage_progress.h"
#include "rondo/base/text.h"
#include "rondo/data/byte_pairs.h"
#include "rondo/data/text.h"

namespace {

using rondo::BytePairs;
using rondo::Document;
using rondo::str;
using rondo::UsageError;

struct TokenizeFlags {
  std::vector<std::string> paths;
  std::string output;
  std::string tokenizer;
  std::string documents = "files";
  std::string field = "text";
  std::string end_of_document = "auto";
  std::vector<std::string> extensions;
  std::int64_t shard_tokens = 100'000'000;
  int threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  std::string json;
};

constexpr std::int64_t kByteValues = 256;
// Bytes of text tokenized between two writes.
constexpr std::size_t kBytesAtOnce = std::size_t{16} << 20;
// Common names of the end-of-text token.
constexpr const char* kEnds[] = {"<|endoftext|>", "<|end_of_text|>", "</s>"};

std::optional<std::int64_t> single_token(const BytePairs& tokenizer, const std::string& text) {
  const std::vector<std::int32_t> tokens = tokenizer.encode(text);
  // A text that is not a single token is split into several, or becomes the unknown token.
  if (tokens.size() != 1 || tokenizer.decode(tokens) != text) return {};
  return tokens.front();
}

// Returns the token after every document.
std::optional<std::int64_t> end_token(const TokenizeFlags& flags, const BytePairs* tokenizer) {
  if (flags.end_of_document == "none") return {};
  if (tokenizer == nullptr) {
    if (flags.end_of_document == "auto") return kByteValues;
    throw UsageError(str("--eos-token ", flags.end_of_document,
                         ": without --tokenizer, tokens are bytes; give auto (token 256) or none"));
  }
  if (flags.end_of_document != "auto") {
    if (const auto token = single_token(*tokenizer, flags.end_of_document)) return token;
    throw UsageError(str("--eos-token ", flags.end_of_document, " is not one token of ", flags.tokenizer));
  }
  for (const char* const end : kEnds) {
    if (const auto token = single_token(*tokenizer, end)) return token;
  }
  throw UsageError(str(flags.tokenizer, " has none of ", rondo::join(kEnds, ", "),
                       "; name the token that ends a document with --eos-token, or give --eos-token none"));
}

rondo::TokenDescription describe(const TokenizeFlags& flags, const BytePairs* tokenizer) {
  rondo::TokenDescription description;
  description.end_of_document = end_token(flags, tokenizer);
  description.vocabulary =
      tokenizer != nullptr ? tokenizer->size() : kByteValues + (description.end_of_document ? 1 : 0);
  description.type = description.vocabulary <= (std::int64_t{1} << 16) ? "uint16" : "uint32";
  description.tokenizer = tokenizer != nullptr ? flags.tokenizer : "bytes";
  return description;
}

std::vector<std::int32_t> tokens_of(std::string_view text, const BytePairs* tokenizer) {
  if (tokenizer != nullptr) return tokenizer->encode(text);
  std::vector<std::int32_t> tokens(text.size());
  std::transform(text.begin(), text.end(), tokens.begin(),
                 [](char c) { return static_cast<unsigned char>(c); });
  return tokens;
}

// Tokenizes documents on threads and keeps their order.
class Tokenizing {
 public:
  Tokenizing(const TokenizeFlags& flags, const BytePairs* tokenizer, rondo::ShardWriter& writer)
      : threads_(flags.threads), tokenizer_(tokenizer), writer_(writer) {}

  void take(Document document) {
    bytes_ += document.content().size();
    waiting_.push_back(std::move(document));
    if (bytes_ >= kBytesAtOnce) flush();
  }

  void flush() {
    std::vector<std::vector<std::int32_t>> tokens(waiting_.size());
    std::atomic<std::size_t> next = 0;
    {
      const auto work = [&] {
        for (std::size_t i = next++; i < waiting_.size(); i = next++)
          tokens[i] = tokens_of(waiting_[i].content(), tokenizer_);
      };
      std::vector<std::jthread> threads;
      for (int i = 1; i < threads_; ++i) threads.emplace_back(work);
      work();
    }
    for (const std::vector<std::int32_t>& document : tokens) writer_.add(document);
    waiting_.clear();
    bytes_ = 0;
  }

 private:
  int threads_;
  const BytePairs* tokenizer_;
  rondo::ShardWriter& writer_;
  std::vector<Document> waiting_;
  std::size_t bytes_ = 0;  // size of the queued documents
};

rondo::DocumentForm form_of(const std::string& name) {
  if (name == "files") return rondo::DocumentForm::file;
  return name == "lines" ? rondo::DocumentForm::line : rondo::DocumentForm::json_line;
}

constexpr std::uint64_t kMegabyte = 1'000'000;

std::int64_t megabytes_of(const std::vector<std::string>& files) {
  std::uint64_t bytes = 0;
  for (const std::string& file : files) {
    std::error_code unreadable;  // reading it reports the error
    const std::uintmax_t size = std::filesystem::file_size(file, unreadable);
    if (!unreadable) bytes += size;
  }
  return static_cast<std::int64_t>(bytes / kMegabyte);
}

int tokenize(const TokenizeFlags& flags) {
  std::optional<BytePairs> tokenizer;
  if (!flags.tokenizer.empty()) tokenizer = BytePairs::from_file(flags.tokenizer);
  const BytePairs* const pairs = tokenizer ? &*tokenizer : nullptr;
  std::vector<std::string> files;
  for (const std::string& path : flags.paths) {
    const std::vector<std::string> found = rondo::find_text_files(path, flags.extensions);
    files.insert(files.end(), found.begin(), found.end());
  }
  rondo::ShardWriter writer(flags.output, describe(flags, pairs), flags.shard_tokens);
  Tokenizing tokenizing(flags, pairs, writer);
  rondo::StageProgress stage;
  stage.begin("tokenizing");
  const rondo::DocumentForm form = form_of(flags.documents);
  const std::int64_t of = form == rondo::DocumentForm::json_line ? 0 : megabytes_of(files);
  std::uint64_t bytes = 0;
  rondo::for_each_document(files, form, flags.field, [&](Document document) {
    bytes += document.content().size();
    tokenizing.take(std::move(document));
    stage.update(static_cast<std::int64_t>(bytes / kMegabyte), of, "MB");
  });
  tokenizing.flush();
  stage.end();
  if (writer.tokens() == 0)
    throw rondo::DataError(rondo::str("there is no document with text in ", rondo::join(flags.paths, ", ")));
  const rondo::TokenDescription& written = writer.finish();
  if (flags.json != "-") {
    std::printf("%lld tokens of %lld documents in %zu shards of %s; vocabulary %lld\n",
                static_cast<long long>(writer.tokens()), static_cast<long long>(written.documents),
                written.shards.size(), written.type.c_str(), static_cast<long long>(written.vocabulary));
  }
  rondo::write_json(flags.json, to_json(written));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  TokenizeFlags flags;
  CLI::App app("Converts texts into token files for `rondo train --data FOLDER`.", "rondo tokenize");
  app.footer(
      "Examples:\n"
      "  rondo tokenize books/ -o tokens --tokenizer tokenizer.json\n"
      "  rondo tokenize pages.jsonl -o tokens --documents jsonl --tokenizer tokenizer.json\n"
      "  rondo train --data tokens --model gpt-tiny");
  app.option_defaults()->always_capture_default();
  app.add_option("PATH", flags.paths, "Text files, or directories of them")
      ->check(rondo::existing_path())
      ->required();
  app.add_option("-o,--output", flags.output, "Folder to write, empty or new")->required();
  app.add_option("--tokenizer", flags.tokenizer, "A byte-pair tokenizer.json; default: one token per byte")
      ->check(rondo::existing_path());
  app.add_option("--documents", flags.documents,
                 "Unit of a document: a file, a line, or a line with a JSON object")
      ->check(CLI::IsMember({"files", "lines", "jsonl"}));
  app.add_option("--field", flags.field, "Field of JSON lines that holds the text");
  app.add_option("--eos-token", flags.end_of_document,
                 "Token after every document: its text, auto (the tokenizer's own) or none");
  app.add_option("--extensions", flags.extensions, "File extensions to read from directories")
      ->delimiter(',');
  app.add_option("--shard-tokens", flags.shard_tokens, "Maximum number of tokens per shard")
      ->check(rondo::positive_number());
  app.add_option("--threads", flags.threads, "Number of threads")->check(rondo::between(1, 4096));
  app.add_option("--json", flags.json, "Write a summary as JSON to FILE, or '-' for standard output");
  return rondo::run_command_line(app, argc, argv, [&] { return tokenize(flags); });
}
