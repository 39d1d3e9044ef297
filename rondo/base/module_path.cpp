#include "rondo/base/module_path.h"

#include <dlfcn.h>
#include <link.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "rondo/base/text.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// "RONDO_MPI_MODULE" of "rondo_mpi.so".
std::string module_variable(const std::string& file) {
  std::string name = file.substr(0, file.rfind(".so")) + "_module";
  for (char& letter : name) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return name;
}

// The folders where the dynamic linker looks for a library that this program loads.
std::vector<fs::path> linker_folders() {
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

}  // namespace

std::string find_module(const std::string& file) {
  const std::string variable = module_variable(file);
  if (const char* given = std::getenv(variable.c_str()); given != nullptr && *given != '\0') return given;
  std::error_code ignored;
  const fs::path programs = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  // A program may lie in a folder below the one of rondo's own programs.
  std::vector<fs::path> folders = {programs, programs / "../lib", programs / "../../lib"};
  for (const fs::path& folder : linker_folders()) folders.push_back(folder);
  for (const fs::path& folder : folders) {
    if (fs::exists(folder / file, ignored)) return fs::path(folder / file).lexically_normal();
  }
  return {};
}

}  // namespace rondo
