#include "apps/train/run_folder.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/models/model_options.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// Returns whether the file is a JSON object with these members.
bool has_members(const fs::path& file, std::initializer_list<const char*> members) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  try {
    const auto document = read_json_file(file);
    return document.is_object() && std::all_of(members.begin(), members.end(),
                                               [&](const char* key) { return document.contains(key); });
  } catch (const DataError&) {
    return false;
  }
}

bool has_checkpoints(const fs::path& root) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root, error)) {
    if (entry.path().filename().string().starts_with("step-")) return true;
  }
  return false;
}

// Returns true for files written before config.json, which a killed run may never have had.
bool precedes_run(const std::string& name) {
  static constexpr std::array<std::string_view, 5> names = {"run.lock", "matmul.json", "profile.json",
                                                            "plan.json", "lost+found"};
  return name.starts_with('.') || std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

bool holds_run(const fs::path& directory) {
  return has_members(directory / "config.json", {"data", "model"}) ||
         has_members(directory / "run.json", {"starts"}) || has_checkpoints(directory / "checkpoints");
}

void refuse_foreign_folder(const fs::path& directory) {
  constexpr std::size_t kNamed = 5;
  std::error_code missing;
  std::vector<std::string> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, missing)) {
    const std::string name = entry.path().filename().string();
    if (!precedes_run(name)) found.push_back(printable(name));
  }
  if (found.empty() || holds_run(directory)) return;
  std::sort(found.begin(), found.end());
  const std::size_t more = found.size() - std::min(found.size(), kNamed);
  found.resize(found.size() - more);
  throw UsageError(str("--run-dir ", directory.string(), " holds no run of `rondo train`, but ",
                       join(found, ", "), more > 0 ? str(" and ", more, " more") : "",
                       "; a run would replace files there. Give a new or an empty folder"));
}

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
  if (fs::create_directories(parent, error)) made_parent_ = parent;  // a failure is reported below
  for (int number = 1;; ++number) {
    path_ = number == 1 ? name : str(name, "-", number);
    if (fs::create_directory(path_, error)) return;
    if (error && error != std::errc::file_exists)
      throw Error(str("cannot create the run directory ", path_.string(), ": ", error.message()));
  }
}

NewRunDirectory::~NewRunDirectory() {
  std::error_code not_empty;
  fs::remove(path_, not_empty);
  if (!made_parent_.empty()) fs::remove(made_parent_, not_empty);
}

}  // namespace rondo
