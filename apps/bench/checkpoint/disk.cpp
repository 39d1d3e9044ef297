#include "apps/bench/checkpoint/disk.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/format/file.h"

namespace rondo::bench {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kBlock = std::size_t{4} << 20;
constexpr std::size_t kAlignment = 4096;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Block = std::unique_ptr<void, Free>;

Block make_block() {
  Block block(std::aligned_alloc(kAlignment, kBlock));
  if (!block) throw Error("no memory for a block of 4 MiB");
  std::memset(block.get(), 0x5a, kBlock);
  return block;
}

class File {
 public:
  File(const fs::path& path, int flags) : descriptor_(::open(path.c_str(), flags | O_CLOEXEC)) {
    if (descriptor_ < 0) throw Error(str("cannot open ", path.string(), ": ", errno_text(errno)));
  }
  ~File() { ::close(descriptor_); }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

double write_directly(const fs::path& path, std::size_t bytes) {
  const Block block = make_block();
  const TimePoint begin = Clock::now();
  OutputFile(path, OutputFile::Mode::create).close();
  const File file(path, O_WRONLY | O_DIRECT);
  for (std::size_t written = 0; written < bytes; written += kBlock) {
    if (::write(file.descriptor(), block.get(), kBlock) != static_cast<ssize_t>(kBlock))
      throw Error(str("cannot write ", path.string(), ": ", errno_text(errno)));
  }
  if (::fsync(file.descriptor()) != 0)
    throw Error(str("cannot sync ", path.string(), ": ", errno_text(errno)));
  return seconds(Clock::now() - begin);
}

double read_directly(const fs::path& path) {
  const Block block = make_block();
  const TimePoint begin = Clock::now();
  const File file(path, O_RDONLY | O_DIRECT);
  for (;;) {
    const ssize_t read = ::read(file.descriptor(), block.get(), kBlock);
    if (read < 0) throw Error(str("cannot read ", path.string(), ": ", errno_text(errno)));
    if (read == 0) return seconds(Clock::now() - begin);
  }
}

void touch_page_cache(const fs::path& path, std::size_t bytes) {
  const Block block = make_block();
  OutputFile file(path, OutputFile::Mode::create);
  for (std::size_t written = 0; written < bytes; written += kBlock)
    file.write({static_cast<const std::byte*>(block.get()), kBlock});
  fs::remove(path);
}

void drop_from_cache(const fs::path& directory) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file()) continue;
    const File file(entry.path(), O_RDONLY);
    ::fsync(file.descriptor());
    ::posix_fadvise(file.descriptor(), 0, 0, POSIX_FADV_DONTNEED);
  }
}

}  // namespace rondo::bench
