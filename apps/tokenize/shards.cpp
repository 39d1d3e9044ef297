#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
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

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kWriteAtOnce = std::size_t{4} << 20;

std::string shard_name(std::size_t number) {
  char name[40];
  std::snprintf(name, sizeof name, "shard_%05zu.bin", number);
  return name;
}

}  // namespace

ShardWriter::ShardWriter(fs::path folder, TokenDescription description, std::int64_t tokens_per_shard)
    : folder_(std::move(folder)), description_(std::move(description)), tokens_per_shard_(tokens_per_shard) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) throw UsageError(str("cannot create the folder ", folder_.string(), ": ", error.message()));
  if (!fs::is_empty(folder_))
    throw UsageError(str(folder_.string(), " is not empty; give an empty or a new folder"));
}

void ShardWriter::add(std::span<const std::int32_t> tokens) {
  append(tokens);
  if (description_.end_of_document) {
    const auto end = static_cast<std::int32_t>(*description_.end_of_document);
    append({&end, 1});
  }
  ++description_.documents;
}

void ShardWriter::append(std::span<const std::int32_t> tokens) {
  const std::size_t width = bytes_per_token(description_.type);
  while (!tokens.empty()) {
    if (!file_) {
      description_.shards.push_back({.file = shard_name(description_.shards.size())});
      file_ =
          std::make_unique<OutputFile>(folder_ / description_.shards.back().file, OutputFile::Mode::create);
    }
    std::int64_t& in_shard = description_.shards.back().tokens;
    const auto room = static_cast<std::size_t>(tokens_per_shard_ - in_shard);
    const std::span<const std::int32_t> part = tokens.first(std::min(tokens.size(), room));
    for (const std::int32_t token : part) {
      for (std::size_t byte = 0; byte < width; ++byte)
        buffer_.push_back(static_cast<char>(static_cast<std::uint32_t>(token) >> (8 * byte)));
    }
    in_shard += static_cast<std::int64_t>(part.size());
    tokens_ += static_cast<std::int64_t>(part.size());
    tokens = tokens.subspan(part.size());
    if (buffer_.size() >= kWriteAtOnce) write_buffer();
    if (in_shard == tokens_per_shard_) close_shard();
  }
}

void ShardWriter::write_buffer() {
  file_->write(buffer_);
  buffer_.clear();
}

void ShardWriter::close_shard() {
  if (!file_) return;
  write_buffer();
  file_->sync();
  file_->close();
  file_.reset();
}

const TokenDescription& ShardWriter::finish() {
  close_shard();
  if (description_.shards.empty()) throw DataError("there is no document with text in it");
  write_own_file(folder_ / kTokenDescription, to_json(description_).dump(2) + "\n");
  return description_;
}

}  // namespace rondo
