#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace rondo {

// A file of a new project. @PROJECT@, @RONDO@ and @LIBTORCH@ stand for the project's name, where rondo is
// installed, and its libtorch.
struct TemplateFile {
  std::string name;
  std::string_view text;
};

// In the order in which they are written.
std::vector<TemplateFile> template_files();

}  // namespace rondo
