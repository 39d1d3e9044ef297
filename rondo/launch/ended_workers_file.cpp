#include "rondo/launch/ended_workers_file.h"

#include <unistd.h>

#include <cerrno>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/launch/memory_file.h"

namespace rondo::launch {

EndedWorkersFile::EndedWorkersFile(int workers)
    : workers_(workers), file_(make_memory_file("rondo-ended-workers")) {
  if (ftruncate(file_.number(), workers) != 0)
    throw Error(str("cannot keep which workers have ended: ", errno_text(errno)));
}

std::string EndedWorkersFile::path() const { return path_of(file_); }

void EndedWorkersFile::note(int worker) const {
  if (worker >= workers_) return;
  const char ended = 1;
  // The file has this byte already: there is nothing that could fail.
  const ssize_t ignored = pwrite(file_.number(), &ended, 1, worker);
  static_cast<void>(ignored);
}

}  // namespace rondo::launch
