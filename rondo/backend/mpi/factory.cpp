#include "rondo/backend/mpi/factory.h"

#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine/module.h"
#include "rondo/base/error.h"
#include "rondo/base/process.h"

namespace rondo {

c10::intrusive_ptr<c10d::Backend> make_mpi_backend(const BackendRequest& request) {
  const std::string path = find_module("rondo_mpi.so");
  if (path.empty()) {
    throw UsageError(
        "backend mpi: rondo_mpi.so was not found beside this program or in ../lib. It is built when Open MPI "
        "is there: apt-get install libopenmpi-dev (or make setup-peers), then build again; RONDO_MPI_MODULE "
        "names another place");
  }
  return load_backend(path, "mpi").factory(request);
}

RegisteredBackend MpiEngineFactory::engine(const Options& /*none*/) {
  return {make_mpi_backend, kMpiTraits, true};
}

}  // namespace rondo
