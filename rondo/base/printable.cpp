#include "rondo/base/printable.h"

#include <cstdlib>
#include <filesystem>
#include <utility>
#include <vector>

#include "rondo/base/text.h"

namespace rondo {
namespace {

bool is_control(std::string_view character) {
  const auto first = static_cast<unsigned char>(character.front());
  if (character.size() == 1) return (first < 0x20 && first != '\n') || first == 0x7F;
  // U+0080 to U+009F are control characters too, and some terminals interpret them.
  return character.size() == 2 && first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

void append_escaped(std::string& out, std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
  }
}

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, length == 0 ? 1 : length);
    if (length == 0 || is_control(character)) {
      append_escaped(out, character);
    } else {
      out += character;
    }
    text.remove_prefix(character.size());
  }
  return out;
}

bool inside_a_character(std::string_view text, std::size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

// Turns "[enforce fail at alloc_cpu.cpp:127] err == 0. message" into "message".
std::string without_place(std::string line) {
  const std::size_t begin = line.find("[enforce fail at "), end = line.find("] ", begin);
  const std::size_t condition = line.find(". ", end);
  return begin == std::string::npos || condition == std::string::npos
             ? line
             : line.erase(begin, condition + 2 - begin);
}

}  // namespace

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool impossible = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) >= 0xA0) ||
                          (first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) >= 0x90);
  return impossible ? 0 : length;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text, std::size_t longest) {
  if (text.size() <= longest) return escaped(text);
  // Keeps both ends: the beginning of a message names the file, the end names the expected value.
  std::size_t head = longest * 3 / 4;
  std::size_t tail = text.size() - longest / 4;
  while (head > 0 && inside_a_character(text, head)) --head;
  while (inside_a_character(text, tail)) ++tail;
  return str(escaped(text.substr(0, head)), "... (", tail - head, " bytes left out) ...",
             escaped(text.substr(tail)));
}

std::string plain_message(const std::exception& error) {
  constexpr std::size_t longest_path = 1024;
  if (const auto* of_files = dynamic_cast<const std::filesystem::filesystem_error*>(&error))
    return str(printable(of_files->path1().string(), longest_path), ": ", of_files->code().message());
  const char* const whole = std::getenv("TORCH_SHOW_CPP_STACKTRACES");
  if (whole != nullptr && std::string_view(whole) == "1") return error.what();
  std::vector<std::string> kept;
  for (std::string& line : split(error.what(), '\n')) {
    if (line.starts_with("Exception raised from ") || line.starts_with("frame #")) continue;
    kept.push_back(without_place(std::move(line)));
  }
  while (kept.size() > 1 && kept.back().empty()) kept.pop_back();
  return join(kept, "\n");
}

}  // namespace rondo
