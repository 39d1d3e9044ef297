#include "apps/bench/python.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::bench {

namespace fs = std::filesystem;

std::string python() {
  if (const char* given = std::getenv("RONDO_PYTHON"); given != nullptr && *given != '\0') return given;
  const std::string in_tree = RONDO_SOURCE_DIR "/.venv/bin/python";
  return access(in_tree.c_str(), X_OK) == 0 ? in_tree : "python3";
}

std::string why_no_pytorch() {
  const std::string command = str("'", python(), "' -c 'import torch.distributed.run' >/dev/null 2>&1");
  // Once a run, with a name that is ours or the user's own.
  if (std::system(command.c_str()) == 0) return {};
  return str(python(),
             " has no PyTorch: make setup installs it into .venv, RONDO_PYTHON names another Python");
}

std::string peer_script(const std::string& name) {
  const fs::path installed =
      fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "share/rondo/bench/peers" / name;
  const fs::path in_tree = fs::path(RONDO_SOURCE_DIR) / "bench/peers" / name;
  for (const fs::path& path : {installed, in_tree}) {
    if (fs::exists(path)) return path;
  }
  throw Error(str("the peer's script is neither ", installed.string(), " nor ", in_tree.string()));
}

}  // namespace rondo::bench
