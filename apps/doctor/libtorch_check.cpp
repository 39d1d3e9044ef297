#include <dlfcn.h>

#include <filesystem>

#include "apps/common/libtorch_location.h"
#include "checks.h"
#include "rondo/base/text.h"
#include "rondo/launch/devices.h"

namespace doctor {
namespace {

namespace fs = std::filesystem;
using rondo::str;

constexpr const char* kGetLibtorch =
    "make setup   (or set LIBTORCH=/path/to/libtorch and build again; any libtorch >= 2.11)";

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
  const auto found = rondo::find_libtorch_below(looked_in);
  if (!found) {
    return {{"libtorch",
             "libtorch",
             State::broken,
             str("not found in ", looked_in.string(), built_in ? ", where it was when rondo was built" : ""),
             kGetLibtorch,
             {{"found", false}, {"directory", looked_in.string()}}}};
  }
  const std::string known = rondo::libtorch_version(*found);
  const std::string version = known.empty() ? "unknown" : known;
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
