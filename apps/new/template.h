#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// A file of a new project. @PROJECT@, @RONDO@ and @LIBTORCH@ are replaced by the project's name, rondo's
// installation and its libtorch.
struct TemplateFile {
  std::string name;
  std::string_view text;
};

// Returns the files in the order of writing.
std::vector<TemplateFile> template_files();

}  // namespace rondo
