#include <dlfcn.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>

#include "checks.h"
#include "rondo/base/text.h"
#include "rondo/launch/devices.h"

namespace doctor {
namespace {

namespace fs = std::filesystem;
using rondo::str;

constexpr const char* kGetLibtorch =
    "make setup   (or set LIBTORCH=/path/to/libtorch and build again; any libtorch >= 2.11)";

bool holds_libtorch(const fs::path& directory) { return fs::exists(directory / "lib" / "libtorch_cpu.so"); }

// The places that LIBTORCH may mean: a libtorch folder, a torch package, a site-packages folder, a virtual
// environment.
std::optional<fs::path> find_below(const fs::path& directory) {
  std::vector<fs::path> candidates = {directory, directory / "torch", directory / "libtorch"};
  std::error_code none;
  for (const auto& python : fs::directory_iterator(directory / "lib", none)) {
    candidates.push_back(python.path() / "site-packages" / "torch");
  }
  for (const fs::path& candidate : candidates) {
    if (holds_libtorch(candidate)) return candidate;
  }
  return std::nullopt;
}

// "2.13.0", from the header that every libtorch carries.
std::string version_of(const fs::path& directory) {
  std::map<std::string, std::string> parts;
  for (const char* header :
       {"include/torch/headeronly/version.h", "include/torch/csrc/api/include/torch/version.h"}) {
    std::ifstream file(directory / header);
    for (std::string line; std::getline(file, line);) {
      std::istringstream words(line);
      std::string directive, name, value;
      words >> directive >> name >> value;
      if (directive == "#define" && !value.empty()) parts[name] = value;
    }
  }
  if (parts.contains("TORCH_VERSION_MAJOR")) {
    return rondo::join(
        std::vector{parts["TORCH_VERSION_MAJOR"], parts["TORCH_VERSION_MINOR"], parts["TORCH_VERSION_PATCH"]},
        ".");
  }
  return "unknown";
}

// Empty when it can be loaded, else why not.
std::string load_error(const fs::path& directory) {
  const std::string path = directory / "lib" / "libtorch_cpu.so";
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return dlerror();
  // Not closed: libtorch starts things that do not take kindly to it.
  return {};
}

}  // namespace

Findings check_libtorch(const std::string& directory) {
  const bool built_in = directory.empty();
  const fs::path looked_in = built_in ? RONDO_LIBTORCH_DIR : directory;
  const auto found = find_below(looked_in);
  if (!found) {
    return {{"libtorch",
             "libtorch",
             State::broken,
             str("not found in ", looked_in.string(), built_in ? ", where it was when rondo was built" : ""),
             kGetLibtorch,
             {{"found", false}, {"directory", looked_in.string()}}}};
  }
  const std::string version = version_of(*found);
  const bool cuda = fs::exists(*found / "lib" / "libtorch_cuda.so");
  const std::string error = load_error(*found);
  nlohmann::json data = {{"found", true},          {"directory", found->string()},
                         {"version", version},     {"cuda", cuda},
                         {"loads", error.empty()}, {"built_with", RONDO_LIBTORCH_VERSION}};
  Findings findings;
  const std::string what = str(version, cuda ? ", CUDA build" : ", CPU build", ", ", found->string());
  if (!error.empty()) {
    findings.push_back({"libtorch", "libtorch", State::broken, str(what, "; it cannot be loaded: ", error),
                        kGetLibtorch, data});
  } else if (version != RONDO_LIBTORCH_VERSION) {
    findings.push_back({"libtorch", "libtorch", State::warning,
                        str(what, "; rondo was built with " RONDO_LIBTORCH_VERSION),
                        "build rondo again with this libtorch", data});
  } else {
    findings.push_back({"libtorch", "libtorch", State::ok, what, "", data});
  }
  const int gpus = rondo::launch::gpu_count();
  if (gpus > 0 && !cuda) {
    findings.push_back(
        {"libtorch", "CUDA", State::missing, str(gpus, " GPU(s), but this libtorch has no CUDA"),
         "LIBTORCH=/path/to/a/CUDA/build make build   (a CUDA wheel of torch will do)", nullptr});
  }
  return findings;
}

}  // namespace doctor
