#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/data/byte_pairs.h"
#include "rondo/data/unicode.h"

namespace rondo {
namespace {

using Json = nlohmann::json;

constexpr const char* kTiktoken =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|@| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Returns the letter that represents each byte in a byte-level vocabulary: the byte itself if it is printable
// in Latin-1, else code points from U+0100 on.
std::vector<char32_t> letters_of_bytes() {
  std::vector<char32_t> letters;
  char32_t next = 256;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool printed = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    letters.push_back(printed ? byte : next++);
  }
  return letters;
}

}  // namespace

// Parser of a tokenizer.json; every error names the file and the entry.
class BytePairsReader {
 public:
  BytePairsReader(const std::string& path, const Json& document) : path_(path), document_(document) {
    const std::vector<char32_t> letters = letters_of_bytes();
    for (std::size_t byte = 0; byte < letters.size(); ++byte)
      byte_of_[letters[byte]] = static_cast<unsigned char>(byte);
  }

  BytePairs read() {
    const Json& model = at(document_, "model");
    json_object(model, place("model"));
    if (const std::string type = text_or(model, "type", "BPE", "model"); type != "BPE")
      fail("model.type", type, "BPE");
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix", "dropout"}) {
      const Json value = model.value(key, Json());
      if (!value.is_null() && value != Json(std::string()) && value != 0.0)
        fail(str("model.", key), value.dump(), "null");
    }
    read_cutting();
    read_vocabulary(at(model, "vocab"));
    read_added_tokens();
    read_bytes();
    if (const Json unknown = model.value("unk_token", Json()); unknown.is_string()) {
      const auto found = written_.find(unknown.get<std::string>());
      if (found != written_.end()) pairs_.unknown_ = found->second;
    }
    pairs_.ignores_merges_ = flag_or(model, "ignore_merges", false, "model");
    read_merges(at(model, "merges"));
    return std::move(pairs_);
  }

 private:
  [[noreturn]] void fail(const std::string& entry, const std::string& value,
                         const std::string& expected) const {
    throw DataError(str("'", path_, "': ", entry, " is ", value.substr(0, 120), ", expected ", expected));
  }
  const Json& at(const Json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end())
      throw DataError(str("'", path_, "': '", key, "' is missing, expected a tokenizer.json"));
    return *found;
  }

  // Returns the location of an entry for errors about its value.
  std::string place(const std::string& entry) const { return str("'", path_, "': ", entry); }
  std::string text_or(const Json& object, const char* key, const char* otherwise,
                      const std::string& entry) const {
    const auto found = object.find(key);
    return found == object.end() ? otherwise : json_text(*found, place(str(entry, ".", key)));
  }
  bool flag_or(const Json& object, const char* key, bool otherwise, const std::string& entry) const {
    const auto found = object.find(key);
    return found == object.end() ? otherwise : json_boolean(*found, place(str(entry, ".", key)));
  }
  // Returns the text of `kind` in the step's pattern object ({"Regex": "..."}); empty if missing.
  std::string pattern_of(const Json& step, const char* kind, const std::string& entry) const {
    const auto pattern = step.find("pattern");
    if (pattern == step.end()) return {};
    return text_or(json_object(*pattern, place(str(entry, ".pattern"))), kind, "", str(entry, ".pattern"));
  }

  // Returns the steps of an entry: the elements of a Sequence, the entry itself, or none if it is null. Each
  // step is an object.
  std::vector<Json> steps_of(const char* name, const char* list) const {
    const Json entry = document_.value(name, Json());
    if (entry.is_null()) return {};
    std::vector<Json> steps = {json_object(entry, place(name))};
    if (text_or(entry, "type", "", name) == "Sequence") {
      const std::string where = str(name, ".", list);
      const Json listed = entry.value(list, Json::array());
      steps.clear();
      for (const Json& step : json_list(listed, place(where)))
        steps.push_back(json_object(step, place(str(where, "[", steps.size(), "]"))));
    }
    return steps;
  }

  void read_cutting() {
    using Style = WordCutting::Style;
    bool cut = false, byte_level = false;
    for (const Json& step : steps_of("pre_tokenizer", "pretokenizers")) {
      const std::string type = text_or(step, "type", "", "pre_tokenizer");
      const auto is_set = [&](const char* key, bool otherwise) {
        return flag_or(step, key, otherwise, "pre_tokenizer");
      };
      if (type == "ByteLevel") {
        byte_level = true;
        pairs_.adds_space_ = is_set("add_prefix_space", false);
        if (is_set("use_regex", true)) pairs_.cutting_ = {Style::gpt2};
        if (is_set("use_regex", true) && cut)
          fail("pre_tokenizer", step.dump(), "use_regex false after Split");
      } else if (type == "Split") {
        cut = true;
        read_expression(step);
      } else if (type == "Metaspace") {
        const char* const older = is_set("add_prefix_space", true) ? "always" : "never";
        const std::string scheme = text_or(step, "prepend_scheme", older, "pre_tokenizer");
        if (is_set("split", true) || scheme == "always")
          fail("pre_tokenizer", step.dump(), "Metaspace with split false and prepend_scheme first or never");
        pairs_.marks_ = scheme == "first" ? BytePairs::Mark::first : BytePairs::Mark::never;
      } else {
        fail("pre_tokenizer", step.dump(), "ByteLevel, Split or Metaspace");
      }
    }
    pairs_.byte_level_ = byte_level;
    read_normalizer();
  }

  void read_normalizer() {
    for (const Json& step : steps_of("normalizer", "normalizers")) {
      const auto text = [&](const char* key) { return text_or(step, key, "", "normalizer"); };
      if (text("type") == "NFC") {
        pairs_.normalizes_ = true;
        continue;
      }
      const bool prepends = text("type") == "Prepend" && text("prepend") == "\xE2\x96\x81";
      const bool replaces = text("type") == "Replace" && text("content") == "\xE2\x96\x81" &&
                            pattern_of(step, "String", "normalizer") == " ";
      if (pairs_.byte_level_ || (!prepends && !replaces))
        fail("normalizer", step.dump(), "none, NFC, or Prepend and Replace of U+2581");
      if (prepends) pairs_.marks_ = BytePairs::Mark::every;
    }
  }

  void read_expression(const Json& step) {
    const std::string expression = pattern_of(step, "Regex", "pre_tokenizer");
    for (const auto& [numbers, digits] : {std::pair{R"(\p{N}{1,3})", std::size_t{3}}, {R"(\p{N})", 1}}) {
      std::string known = kTiktoken;
      known.replace(known.find('@'), 1, numbers);
      if (expression == known && text_or(step, "behavior", "", "pre_tokenizer") == "Isolated" &&
          !flag_or(step, "invert", false, "pre_tokenizer")) {
        pairs_.cutting_ = {WordCutting::Style::tiktoken, digits};
        return;
      }
    }
    fail("pre_tokenizer", step.dump(), "the regular expression of GPT-2, Llama 3 or Qwen 2");
  }

  // Returns the bytes of a token in the file.
  std::string bytes_of(const std::string& token) const {
    if (!pairs_.byte_level_) {
      unsigned byte = 0;
      if (token.size() == 6 && std::sscanf(token.c_str(), "<0x%02X>", &byte) == 1)
        return {static_cast<char>(byte)};
      return token;
    }
    std::string bytes;
    for (std::size_t position = 0; position < token.size();) {
      const auto found = byte_of_.find(unicode::next(token, position));
      if (found == byte_of_.end()) return token;  // a special token
      bytes += static_cast<char>(found->second);
    }
    return bytes;
  }

  void add(const std::string& token, std::int64_t number, const std::string& bytes) {
    constexpr std::int64_t kMost = 1 << 24;
    if (number < 0 || number >= kMost)
      fail(str("token '", token, "'"), str(number), "a number of at least 0");
    const auto place = static_cast<std::size_t>(number);
    if (place >= pairs_.texts_.size()) pairs_.texts_.resize(place + 1);
    pairs_.texts_[place] = bytes;
    pairs_.size_ = static_cast<std::int64_t>(pairs_.texts_.size());
    written_[token] = static_cast<std::int32_t>(number);
  }

  void read_vocabulary(const Json& vocabulary) {
    if (!vocabulary.is_object() || vocabulary.empty())
      fail("model.vocab", vocabulary.dump(), "tokens with numbers");
    for (const auto& [token, number] : vocabulary.items()) {
      if (!number.is_number_integer()) fail(str("model.vocab['", token, "']"), number.dump(), "a number");
      add(token, number.get<std::int64_t>(), bytes_of(token));
    }
    for (const auto& [token, number] : written_)
      pairs_.index_.emplace(pairs_.byte_level_ ? bytes_of(token) : token, number);
  }

  void read_added_tokens() {
    const Json tokens = document_.value("added_tokens", Json::array());
    for (const Json& token : json_list(tokens, place("added_tokens"))) {
      const std::string entry =
          str("added_tokens[", pairs_.special_.size() + pairs_.special_normalized_.size(), "]");
      const std::string content = text_or(json_object(token, place(entry)), "content", "", entry);
      if (content.empty() || !token.contains("id")) fail(entry, token.dump(), "content and id");
      for (const char* key : {"lstrip", "rstrip", "single_word"}) {
        if (flag_or(token, key, false, entry)) fail(str(entry, ".", key), token.dump(), "false");
      }
      add(content, json_integer(token.at("id"), place(str(entry, ".id"))), content);
      const bool is_normalized = pairs_.normalizes_ && flag_or(token, "normalized", false, entry);
      (is_normalized ? pairs_.special_normalized_ : pairs_.special_)
          .emplace_back(is_normalized ? unicode::normalized_nfc(content) : content, written_.at(content));
    }
    for (BytePairs::Special* special : {&pairs_.special_, &pairs_.special_normalized_})
      std::sort(special->begin(), special->end(),
                [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
  }

  void read_bytes() {
    const std::vector<char32_t> letters = letters_of_bytes();
    for (std::size_t byte = 0; byte < 256; ++byte) {
      std::string token = str("<0x", "0123456789ABCDEF"[byte / 16], "0123456789ABCDEF"[byte % 16], ">");
      if (pairs_.byte_level_) {
        token.clear();
        unicode::append(token, letters[byte]);
      }
      const auto found = written_.find(token);
      if (found == written_.end() && pairs_.byte_level_)
        throw DataError(str("'", path_, "': model.vocab lacks byte ", byte, " ('", token, "')"));
      pairs_.bytes_.push_back(found == written_.end() ? -1 : found->second);
    }
  }

  void read_merges(const Json& merges) {
    if (!merges.is_array()) fail("model.merges", merges.dump(), "a list of pairs");
    std::int32_t rank = 0;
    for (const Json& entry : merges) {
      std::string left, right;
      if (entry.is_array() && entry.size() == 2 && entry[0].is_string() && entry[1].is_string()) {
        left = entry[0].get<std::string>();
        right = entry[1].get<std::string>();
      } else if (entry.is_string()) {
        const std::string text = entry.get<std::string>();
        const std::size_t space = text.find(' ');
        if (space != std::string::npos) {
          left = text.substr(0, space);
          right = text.substr(space + 1);
        }
      }
      const auto first = written_.find(left), second = written_.find(right),
                 both = written_.find(left + right);
      if (first == written_.end() || second == written_.end() || both == written_.end())
        fail(str("model.merges[", rank, "]"), entry.dump(), "two tokens that together are one");
      const auto key = (static_cast<std::uint64_t>(static_cast<std::uint32_t>(first->second)) << 32) |
                       static_cast<std::uint32_t>(second->second);
      pairs_.merges_.emplace(key, BytePairs::Merge{rank++, both->second});
    }
  }

  const std::string& path_;
  const Json& document_;
  BytePairs pairs_;
  std::unordered_map<char32_t, unsigned char> byte_of_;
  std::unordered_map<std::string, std::int32_t> written_;  // tokens as written in the file
};

BytePairs BytePairs::from_file(const std::string& path) {
  const Json document = read_json_file(path);
  try {
    return BytePairsReader(path, document).read();
  } catch (const Json::exception& error) {
    throw DataError(str("'", path, "': expected a tokenizer.json of Hugging Face: ", json_problem(error)));
  }
}

}  // namespace rondo
