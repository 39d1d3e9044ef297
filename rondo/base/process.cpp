#include "rondo/base/process.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <vector>

#include "rondo/base/library_folders.h"
#include "rondo/base/text.h"

namespace rondo {

std::string machine_name() {
  std::ifstream cpus("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(cpus, line);) {
    const auto colon = line.find(": ");
    if (!line.starts_with("model name") || colon == std::string::npos) continue;
    model = line.substr(colon + 2);
    break;
  }
  return str(model, ", ", sysconf(_SC_NPROCESSORS_ONLN), " processors");
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown host";
}

std::filesystem::path measurement_path(const char* variable, const char* file) {
  const auto value_of = [](const char* name) {
    const char* value = std::getenv(name);
    return std::filesystem::path(value == nullptr ? "" : value);
  };
  if (auto path = value_of(variable); !path.empty()) return path;
  // The XDG base directory specification says to ignore relative paths.
  if (const auto cache = value_of("XDG_CACHE_HOME"); cache.is_absolute()) return cache / "rondo" / file;
  if (const auto home = value_of("HOME"); home.is_absolute()) return home / ".cache" / "rondo" / file;
  return {};
}

namespace {

namespace fs = std::filesystem;

// Returns the environment variable of a module: "RONDO_MPI_MODULE" for "rondo_mpi.so".
std::string module_variable(const std::string& file) {
  std::string name = file.substr(0, file.rfind(".so")) + "_module";
  for (char& letter : name) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return name;
}

}  // namespace

std::vector<fs::path> library_folders() {
  std::vector<fs::path> folders;
  void* const program = dlopen(nullptr, RTLD_LAZY);
  Dl_serinfo size{};
  if (program != nullptr && dlinfo(program, RTLD_DI_SERINFOSIZE, &size) == 0) {
    std::vector<std::max_align_t> memory(size.dls_size / sizeof(std::max_align_t) + 1);
    auto* const found = new (memory.data()) Dl_serinfo(size);
    if (dlinfo(program, RTLD_DI_SERINFO, found) == 0) {
      for (unsigned i = 0; i < found->dls_cnt; ++i) folders.emplace_back(found->dls_serpath[i].dls_name);
    }
  }
  if (program != nullptr) dlclose(program);
  return folders;
}

std::string find_module(const std::string& file) {
  const std::string variable = module_variable(file);
  if (const char* given = std::getenv(variable.c_str()); given != nullptr && *given != '\0') return given;
  std::error_code ignored;
  const fs::path programs = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  // A program may be installed one folder below rondo's own programs.
  std::vector<fs::path> folders = {programs, programs / "../lib", programs / "../../lib"};
  for (const fs::path& folder : library_folders()) folders.push_back(folder);
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / file, ignored)) return fs::path(folder / file).lexically_normal();
  }
  return {};
}

constinit std::atomic<std::uint64_t> forks_since_own_process{0};

namespace {

void count_fork() { forks_since_own_process.fetch_add(1); }

void count_forks_from_now_on() {
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, &count_fork); });
}

}  // namespace

OwnProcess::OwnProcess() {
  count_forks_from_now_on();
  forks_ = forks_since_own_process.load();
}

}  // namespace rondo
