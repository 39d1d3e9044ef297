#include <charconv>
#include <cstdint>
#include <set>

#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/options/config_builder.h"

namespace rondo {
namespace {

using Path = std::vector<std::string>;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_bare_key(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

// Whether a word is a decimal number as TOML writes it; its underscores are taken out. "1_000", "-0.5e-3".
bool is_toml_number(std::string_view word, std::string& digits) {
  digits.clear();
  std::size_t at = 0;
  const auto peek = [&] { return at < word.size() ? word[at] : '\0'; };
  const auto take_digits = [&] {
    const std::size_t begin = at;
    while (is_digit(peek()) || (peek() == '_' && at > begin && is_digit(word[at - 1]) &&
                                at + 1 < word.size() && is_digit(word[at + 1]))) {
      if (peek() != '_') digits += peek();
      ++at;
    }
    return at > begin;
  };
  const auto take_sign = [&] {
    if (peek() == '-') digits += '-';
    if (peek() == '-' || peek() == '+') ++at;
  };
  take_sign();
  if (peek() == '0' && at + 1 < word.size() && (is_digit(word[at + 1]) || word[at + 1] == '_')) return false;
  if (!take_digits()) return false;
  if (peek() == '.') {
    digits += word[at++];
    if (!take_digits()) return false;
  }
  if (peek() == 'e' || peek() == 'E') {
    digits += word[at++];
    take_sign();
    if (!take_digits()) return false;
  }
  return at == word.size();
}

class TomlReader {
 public:
  TomlReader(std::string_view text, ConfigBuilder& builder) : text_(text), builder_(builder) {}

  void read() {
    while (skip_lines()) {
      if (peek() == '[') {
        read_header();
      } else {
        read_pair(table_, 0);
      }
      end_line();
    }
  }

 private:
  char peek(std::size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
  bool ended() const { return at_ >= text_.size(); }
  bool looking_at(std::string_view word) const { return text_.substr(at_).starts_with(word); }
  [[noreturn]] void fail(const std::string& problem) const { builder_.fail(line_, problem); }

  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t') ++at_;
  }
  void skip_comment() {
    if (peek() != '#') return;
    while (!ended() && peek() != '\n') ++at_;
  }
  // A line may end in "\r\n".
  bool skip_end_of_line() {
    if (looking_at("\r\n")) ++at_;
    if (peek() != '\n') return false;
    ++at_;
    ++line_;
    return true;
  }
  // Skips blanks, comments and ends of lines. Returns whether anything follows.
  bool skip_lines() {
    do {
      skip_blanks();
      skip_comment();
    } while (skip_end_of_line());
    return !ended();
  }
  void end_line() {
    skip_blanks();
    skip_comment();
    if (!ended() && !skip_end_of_line())
      fail(str("unexpected '", printable(rest_of_line()), "' behind the value; one option stands on a line"));
  }
  std::string rest_of_line() const {
    const std::string_view rest = text_.substr(at_);
    return std::string(rest.substr(0, std::min<std::size_t>(rest.find('\n'), 40)));
  }

  void read_header() {
    if (looking_at("[[")) fail("arrays of tables ([[name]]) are not supported");
    ++at_;
    table_ = read_path();
    if (peek() != ']') fail("expected ']' behind the table's name");
    ++at_;
    if (!tables_.insert(table_).second) fail(str("table [", printable(join(table_, ".")), "] appears twice"));
  }

  // NAME = VALUE in the tables of `prefix`.
  void read_pair(const Path& prefix, int depth) {
    Path path = prefix;
    const int line = line_;
    for (std::string& key : read_path()) path.push_back(std::move(key));
    if (path.size() > kDeepestConfig) fail(str("more than ", kDeepestConfig, " tables inside each other"));
    if (peek() != '=') fail(str("expected '=' behind ", printable(join(path, "."))));
    ++at_;
    skip_blanks();
    if (peek() == '{') {
      read_inline_table(path, depth + 1);
    } else {
      builder_.add(path, read_value(depth), line);
    }
  }

  Path read_path() {
    Path path;
    do {
      if (!path.empty()) ++at_;  // the dot
      skip_blanks();
      path.push_back(read_key());
      skip_blanks();
    } while (peek() == '.');
    return path;
  }

  std::string read_key() {
    if (peek() == '"') return read_basic_string();
    if (peek() == '\'') return read_literal_string();
    const std::size_t begin = at_;
    while (is_bare_key(peek())) ++at_;
    if (at_ == begin)
      fail(str("expected the name of an option, as in lr = 0.001, not '", printable(rest_of_line()), "'"));
    return std::string(text_.substr(begin, at_ - begin));
  }

  void read_inline_table(const Path& path, int depth) {
    check_depth(depth);
    ++at_;
    skip_blanks();
    if (peek() == '}') {
      ++at_;
      return;
    }
    while (true) {
      read_pair(path, depth);
      skip_blanks();
      if (peek() == '}') break;
      if (peek() != ',') fail("expected ',' or '}' in a table of one line");
      ++at_;
      skip_blanks();
    }
    ++at_;
  }

  nlohmann::json read_value(int depth) {
    if (peek() == '"') return read_basic_string();
    if (peek() == '\'') return read_literal_string();
    if (peek() == '[') return read_list(depth + 1);
    if (peek() == '{') fail("tables inside a list are not supported");
    const std::size_t begin = at_;
    while (!ended() && std::string_view(" \t\r\n,]}#").find(peek()) == std::string_view::npos) ++at_;
    return read_word(text_.substr(begin, at_ - begin));
  }

  nlohmann::json read_word(std::string_view word) const {
    if (word == "true") return true;
    if (word == "false") return false;
    std::string digits;
    if (word.empty()) fail("the value is missing");
    if (!is_toml_number(word, digits))
      fail(str("'", printable(word),
               "' is no value: a text stands in quotes; others are numbers (1, 0.5, 1e-3), "
               "true, false and lists"));
    const char* const begin = digits.data();
    const char* const end = begin + digits.size();
    const bool is_whole = digits.find_first_of(".eE") == std::string::npos;
    std::int64_t whole = 0;
    if (is_whole && std::from_chars(begin, end, whole).ec == std::errc()) return whole;
    std::uint64_t large = 0;  // a seed of 2^63 or more
    if (is_whole && std::from_chars(begin, end, large).ec == std::errc()) return large;
    double number = 0;
    if (is_whole || std::from_chars(begin, end, number).ec != std::errc())
      fail(str(printable(word), " is too large a number"));
    return number;
  }

  nlohmann::json read_list(int depth) {
    check_depth(depth);
    const int first = line_;
    nlohmann::json list = nlohmann::json::array();
    ++at_;
    while (skip_lines() && peek() != ']') {
      list.push_back(read_value(depth));
      if (!skip_lines()) break;
      if (peek() == ',') {
        ++at_;
      } else if (peek() != ']') {
        fail("expected ',' or ']' in a list");
      }
    }
    if (ended()) builder_.fail(first, "the list is not closed by ']'");
    ++at_;
    return list;
  }

  void check_depth(int depth) const {
    if (depth > kDeepestConfig) fail(str("more than ", kDeepestConfig, " levels inside each other"));
  }

  // The character of a string that is not its end.
  char next_in_string() {
    if (ended() || peek() == '\n' || looking_at("\r\n")) fail("the text is not closed on its line");
    const char c = text_[at_++];
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\t') || byte == 0x7F) fail("a text holds a control character");
    return c;
  }

  std::string read_literal_string() {
    if (looking_at("'''")) fail("texts of several lines (''') are not supported");
    std::string value;
    for (++at_; peek() != '\'';) value += next_in_string();
    ++at_;
    return value;
  }

  std::string read_basic_string() {
    if (looking_at("\"\"\"")) fail("texts of several lines (\"\"\") are not supported");
    std::string value;
    for (++at_; peek() != '"';) {
      const char c = next_in_string();
      if (c == '\\') {
        read_escape(value);
      } else {
        value += c;
      }
    }
    ++at_;
    return value;
  }

  void read_escape(std::string& value) {
    constexpr std::string_view names = "btnfr\"\\", meanings = "\b\t\n\f\r\"\\";
    const char c = next_in_string();
    if (const std::size_t known = names.find(c); known != std::string_view::npos) {
      value += meanings[known];
      return;
    }
    if (c != 'u' && c != 'U')
      fail(str("unknown escape \\", printable(std::string_view(&c, 1)),
               " in a text; a backslash itself is \\\\"));
    std::uint32_t code = 0;
    const char* const begin = text_.data() + at_;
    const std::size_t length = c == 'u' ? 4 : 8;
    const bool is_there = at_ + length <= text_.size();
    const auto [end, error] = std::from_chars(begin, begin + (is_there ? length : 0), code, 16);
    const bool is_scalar = code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
    if (!is_there || error != std::errc() || end != begin + length || !is_scalar)
      fail(str("\\", std::string(1, c), " wants ", length, " hexadecimal digits of a character"));
    at_ += length;
    append_utf8(value, code);
  }

  std::string_view text_;
  ConfigBuilder& builder_;
  std::size_t at_ = 0;
  int line_ = 1;
  Path table_;
  std::set<Path> tables_;  // whose headers were read
};

}  // namespace

void read_toml(std::string_view text, ConfigBuilder& builder) { TomlReader(text, builder).read(); }

}  // namespace rondo
