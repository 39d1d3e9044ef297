#include "rondo/format/provenance.h"

#include <unistd.h>

#include <array>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "rondo/base/machine.h"
#include "rondo/base/text.h"
#include "rondo/base/version.h"

namespace rondo {
namespace {

bool is_plain_word(const std::string& word) {
  constexpr const char* kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,+@%^";
  return !word.empty() && word.find_first_not_of(kPlain) == std::string::npos;
}

std::string quoted_word(const std::string& word) {
  if (is_plain_word(word)) return word;
  std::string result = "'";
  for (const char c : word) c == '\'' ? result += "'\\''" : result += c;
  return result + "'";
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

}  // namespace

std::string shell_text(std::span<const std::string> words) {
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back(quoted_word(word));
  return join(quoted, " ");
}

std::string own_command() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return shell_text(words);
}

Provenance make_provenance(const std::string& program, std::span<const std::string> arguments) {
  const std::string words = shell_text(arguments);
  return {.program = program,
          .version = kVersion,
          .time = utc_now(),
          .host = host_name(),
          .command = words.empty() ? program : program + " " + words};
}

nlohmann::ordered_json to_json(const Provenance& provenance) {
  return {{"program", provenance.program},
          {"version", provenance.version},
          {"time", provenance.time},
          {"host", provenance.host},
          {"command", provenance.command}};
}

}  // namespace rondo
