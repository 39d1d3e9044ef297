#include "rondo/launch/memory_file.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::launch {

Descriptor make_memory_file(const std::string& name) {
  Descriptor file(memfd_create(name.c_str(), MFD_CLOEXEC));
  if (!file.valid() || fchmod(file.number(), S_IRUSR | S_IWUSR) != 0)
    throw Error(str("cannot make the shared-memory file ", name, ": ", errno_text(errno)));
  return file;
}

std::string path_of(const Descriptor& file) { return str("/proc/", getpid(), "/fd/", file.number()); }

}  // namespace rondo::launch
