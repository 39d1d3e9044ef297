#include "apps/common/matmul_setup.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

#include "apps/common/child_output.h"
#include "apps/common/libtorch_location.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/kernels/matmul_choice.h"
#include "rondo/launch/descriptor.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPlaceVariable = "RONDO_MATMUL_MEASUREMENTS";

// Returns true if a small file can be created beside `path`; creates its folder if missing. It writes a file,
// because permissions do not reveal read-only or full disks.
bool can_be_written(const fs::path& path) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  if (failed) return false;
  std::string probe = path.string() + ".XXXXXX";
  const int file = mkstemp(probe.data());
  if (file < 0) return false;
  const std::array<char, 4096> bytes{};
  const bool written = write(file, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  close(file);
  unlink(probe.c_str());
  return written;
}

// Returns the possible places of measurements, best first.
std::vector<fs::path> places(const fs::path& run_directory) {
  std::vector<fs::path> result;
  if (fs::path path = matmul_measurements_path(); !path.empty()) result.push_back(std::move(path));
  if (!run_directory.empty()) result.push_back(run_directory / "matmul.json");
  return result;
}

// Makes ranks read measurements from `path`.
void use_place(const fs::path& path) { setenv(kPlaceVariable, path.c_str(), /*overwrite=*/1); }

// A measurement takes some seconds, more on a busy machine. A program that is suspended meanwhile keeps its
// lock.
constexpr Duration kLongestMeasuring = std::chrono::minutes(2);

// Locks `place` for one program's measurement. Two at once would disturb each other, and the second result
// would replace the kernels that the first program already uses. The lock is on the folder of the place; on a
// file system without locks both measure. Throws Error if another program holds it too long.
launch::Descriptor turn_to_measure(const fs::path& place) {
  const fs::path folder = place.has_parent_path() ? place.parent_path() : fs::path(".");
  launch::Descriptor lock(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.valid()) return lock;
  const auto is_held_by_another = [&] {
    return flock(lock.number(), LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR);
  };
  if (!is_held_by_another()) return lock;
  std::fprintf(
      stderr,
      "rondo: waiting for another program that measures matrix products on this machine (%s is locked)\n",
      folder.c_str());
  const Deadline deadline = Deadline::after(kLongestMeasuring);
  while (is_held_by_another()) {
    if (deadline.passed())
      throw Error(str("another program has kept ", folder.string(), " locked for ",
                      to_string(kLongestMeasuring), ", longer than a measurement takes"));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return lock;
}

}  // namespace

bool matmul_has_a_choice() {
  std::ifstream cpus("/proc/cpuinfo");
  for (std::string line; std::getline(cpus, line);) {
    if (line.starts_with("vendor_id")) return line.find("GenuineIntel") == std::string::npos;
  }
  return false;
}

void measure_matmul() {
  const fs::path program = fs::read_symlink("/proc/self/exe").parent_path() / "rondo-matmul";
  std::fprintf(stderr,
               "rondo: measuring the kernels for float32 matrix products, once per machine, which takes some "
               "seconds (results in %s)\n",
               matmul_measurements_path().c_str());
  const ChildOutput output = run_child({program.string()});
  if (output.exit_code != 0) throw Error(str(program.string(), " ended with exit code ", output.exit_code));
}

std::optional<std::string> find_place_for_matmul(const fs::path& run_directory) {
  for (const fs::path& place : places(run_directory)) {
    if (!can_be_written(place)) continue;
    use_place(place);
    return place.string();
  }
  return std::nullopt;
}

void prepare_matmul(const std::string& setting, const fs::path& run_directory) {
  set_matmul(setting);
  if (setting != "auto") return;
  const char* const user = std::getenv(kMatmulVariable);
  if ((user != nullptr && std::string_view(user) != "auto") || !matmul_has_a_choice()) return;
  try {
    const std::string library = library_identity(locate_libtorch() / "lib" / "libtorch_cpu.so");
    const std::vector<fs::path> tried = places(run_directory);
    for (const fs::path& place : tried) {
      if (!find_matmul_measurement(place, library)) continue;
      use_place(place);
      return;
    }
    const std::optional<std::string> place = find_place_for_matmul(run_directory);
    if (!place) {
      log::warning(
          "matrix products use the default kernels: a measurement of faster ones cannot be saved in ",
          tried.empty() ? "any folder (neither HOME nor XDG_CACHE_HOME is set)" : path_list(tried), "; set ",
          kPlaceVariable, "=FILE to save it elsewhere, or give --matmul libtorch to skip it");
      return;
    }
    const launch::Descriptor turn = turn_to_measure(*place);
    if (!find_matmul_measurement(*place, library)) measure_matmul();
  } catch (const std::exception& error) {
    log::warning("matrix products use the default kernels: faster ones could not be measured: ",
                 error.what());
  }
}

}  // namespace rondo
