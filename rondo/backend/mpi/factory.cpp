#include "rondo/backend/mpi/factory.h"

#include <cstdlib>
#include <filesystem>

#include "rondo/backend/engine/module.h"
#include "rondo/backend/mpi/mpi_options.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

std::string mpi_module_path() {
  namespace fs = std::filesystem;
  if (const char* given = std::getenv("RONDO_MPI_MODULE"); given != nullptr && *given != '\0') return given;
  std::error_code ignored;
  const fs::path programs = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  // A program may lie in a folder below the one of rondo's own programs.
  for (const fs::path& folder : {programs, programs / "../lib", programs / "../../lib"}) {
    if (fs::exists(folder / "rondo_mpi.so", ignored)) return (folder / "rondo_mpi.so").lexically_normal();
  }
  return {};
}

c10::intrusive_ptr<c10d::Backend> make_mpi_backend(const BackendRequest& request) {
  const std::string path = mpi_module_path();
  if (path.empty()) {
    throw UsageError(
        "backend mpi: rondo_mpi.so was not found beside this program or in ../lib. It is built when Open MPI "
        "is "
        "there: apt-get install libopenmpi-dev (or make setup-peers), then build again; RONDO_MPI_MODULE "
        "names "
        "another place");
  }
  return load_backend(path, "mpi").factory(request);
}

RegisteredBackend MpiFolder::engine(const Options& /*none*/) { return {make_mpi_backend, kMpiTraits, true}; }

}  // namespace rondo
