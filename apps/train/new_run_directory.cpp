#include "apps/train/new_run_directory.h"

#include <array>
#include <ctime>
#include <system_error>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/models/model_options.h"

namespace rondo {

namespace fs = std::filesystem;

std::string default_run_directory(const std::string& model) {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d-%H%M%S", &parts);
  return str("runs/", text.data(), "-", short_model_name(model));
}

NewRunDirectory::NewRunDirectory(const std::string& model) {
  const std::string name = default_run_directory(model);
  std::error_code error;
  const fs::path parent = fs::path(name).parent_path();
  if (fs::create_directories(parent, error)) made_parent_ = parent;  // what is wrong with it is said below
  for (int number = 1;; ++number) {
    path_ = number == 1 ? name : str(name, "-", number);
    if (fs::create_directory(path_, error)) return;
    if (error && error != std::errc::file_exists)
      throw Error(str("cannot make the run directory ", path_.string(), ": ", error.message()));
  }
}

NewRunDirectory::~NewRunDirectory() {
  std::error_code not_empty;
  fs::remove(path_, not_empty);
  if (!made_parent_.empty()) fs::remove(made_parent_, not_empty);
}

}  // namespace rondo
