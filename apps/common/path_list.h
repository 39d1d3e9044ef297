#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "rondo/base/text.h"

namespace rondo {

// "a/b, c": for messages that say where something was looked for.
inline std::string path_list(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> texts;
  for (const std::filesystem::path& path : paths) texts.push_back(path.string());
  return join(texts, ", ");
}

}  // namespace rondo
