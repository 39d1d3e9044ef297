#include "rondo/train/replica/replica_root.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "rondo/backend/rendezvous.h"
#include "rondo/base/text.h"
#include "rondo/env/environment.h"
#include "rondo/env/launcher_files.h"
#include "rondo/format/checksum.h"
#include "rondo/format/file.h"

namespace rondo {

std::optional<std::filesystem::path> replica_root(const std::filesystem::path& run_directory) {
  const env::EnvironmentMap environment = env::process_environment();
  const auto memory = env::lookup(environment, env::kJobMemoryVariable);
  if (!memory) return std::nullopt;
  std::string host = str("host-", env::lookup(environment, kHostVariable).value_or(""));
  std::replace_if(
      host.begin(), host.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '-');
  const std::string run = std::filesystem::absolute(run_directory).lexically_normal().string();
  return std::filesystem::path(*memory) / host / str("run-", checksum_hex(as_bytes(run)).substr(0, 16));
}

}  // namespace rondo
