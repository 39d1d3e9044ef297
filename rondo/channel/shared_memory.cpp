#include "rondo/channel/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/file_space.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Closes a descriptor unless ownership was handed on.
class DescriptorGuard {
 public:
  explicit DescriptorGuard(int descriptor) : descriptor_(descriptor) {}
  DescriptorGuard(const DescriptorGuard&) = delete;
  DescriptorGuard& operator=(const DescriptorGuard&) = delete;
  ~DescriptorGuard() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int get() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_;
};

std::size_t file_size(int descriptor, const std::string& what) {
  struct stat status {};
  if (fstat(descriptor, &status) != 0) throw Error(str("cannot inspect ", what, ": ", errno_text(errno)));
  if (status.st_uid != geteuid()) {
    throw Error(str(what, " belongs to user ", status.st_uid, ", not to this process's user ", geteuid()));
  }
  return static_cast<std::size_t>(status.st_size);
}

}  // namespace

SharedMemory::SharedMemory(int descriptor, std::size_t size) : size_(size) {
  // MAP_NORESERVE: a large sparse file must not count against the commit limit before it is touched.
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0);
  if (mapped == MAP_FAILED) {
    throw Error(str("cannot map ", to_string(Bytes{size}), " of shared memory: ", errno_text(errno),
                    "; see 'ulimit -v' and the memory limit of the container"));
  }
  data_ = static_cast<std::byte*>(mapped);
  descriptor_ = descriptor;
}

SharedMemory SharedMemory::create(const std::string& label, Bytes size) {
  DescriptorGuard file(memfd_create(label.c_str(), MFD_CLOEXEC));
  if (file.get() < 0) {
    throw Error(str("cannot make a shared-memory file of ", to_string(size), " (memfd): ", errno_text(errno),
                    errno == EMFILE ? "; raise the limit with 'ulimit -n'" : ""));
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      size.count > limit.rlim_cur) {
    throw Error(str("shared memory of ", to_string(size), " is above the file size limit of ",
                    to_string(Bytes{limit.rlim_cur}), "; raise it with 'ulimit -f unlimited'"));
  }
  if (fchmod(file.get(), S_IRUSR | S_IWUSR) != 0 ||
      ftruncate(file.get(), static_cast<off_t>(size.count)) != 0) {
    throw Error(str("cannot size a shared-memory file to ", to_string(size), ": ", errno_text(errno)));
  }
  SharedMemory memory(file.get(), size.count);
  file.release();
  return memory;
}

SharedMemory SharedMemory::open(pid_t pid, int descriptor) {
  const std::string path = str("/proc/", pid, "/fd/", descriptor);
  DescriptorGuard file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (file.get() < 0) {
    throw Error(str("cannot open the shared memory of process ", pid, " (", path, "): ", errno_text(errno),
                    ". The ranks of one host must run as the same user and see each other's processes "
                    "(containers: share the PID namespace); otherwise choose backend gloo (--backend gloo)"));
  }
  const std::size_t size = file_size(file.get(), path);
  SharedMemory memory(file.get(), size);
  file.release();
  return memory;
}

SharedMemory SharedMemory::adopt(int descriptor) {
  DescriptorGuard file(fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (file.get() < 0) throw Error(str("descriptor ", descriptor, " is not open: ", errno_text(errno)));
  const std::size_t size = file_size(file.get(), str("descriptor ", descriptor));
  SharedMemory memory(file.get(), size);
  file.release();
  return memory;
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
  if (descriptor_ >= 0) close(descriptor_);
}

void SharedMemory::commit(std::size_t offset, std::size_t length, const std::string& what) const {
  const int error = take_file_space(descriptor_, offset, length);
  // Some kernels have shared memory without it; then pages come when they are touched.
  if (error == 0 || error == EOPNOTSUPP || error == ENOSYS) return;
  throw Error(str("not enough memory for ", what, ": the system gives no ", to_string(Bytes{length}),
                  " of shared memory: ", errno_text(error),
                  ". Free memory, raise the limit (memory.max of the cgroup, vm.overcommit_memory, the size "
                  "of the file system that the file is in), or start fewer or smaller processes"));
}

void SharedMemory::map_pages(std::size_t offset, std::size_t length) const {
  // An older kernel knows it not; then each page is mapped when it is touched.
  madvise(data_ + offset, length, MADV_POPULATE_WRITE);
}

void SharedMemory::discard(std::size_t offset, std::size_t length) const {
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(length));
}

void SharedMemory::make_private() const {
  // In place of a mapping of the same size, without a reservation: nothing that the kernel would refuse.
  static_cast<void>(
      mmap(data_, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, descriptor_, 0));
}

namespace {

// Mappings of this process by nonce. Two mappings of one file would be correct too; sharing one keeps address
// space small, and lets a race detector see that ranks which are threads touch the same memory.
struct AttachedMemory {
  std::mutex mutex;  // protects by_nonce
  std::map<std::uint64_t, std::weak_ptr<SharedMemory>> by_nonce;
};

AttachedMemory& attached_memory() {
  static AttachedMemory instance;
  return instance;
}

}  // namespace

PublishedMemory publish_shared_memory(const std::string& label, Bytes size) {
  PublishedMemory made;
  made.memory = std::make_shared<SharedMemory>(SharedMemory::create(label, size));
  made.address = {getpid(), made.memory->descriptor(), random_nonce()};
  std::memcpy(made.memory->data(), &made.address.nonce, sizeof(made.address.nonce));
  AttachedMemory& attached = attached_memory();
  const std::lock_guard lock(attached.mutex);
  attached.by_nonce[made.address.nonce] = made.memory;
  return made;
}

std::shared_ptr<SharedMemory> attach_shared_memory(const SharedMemoryAddress& address) {
  AttachedMemory& attached = attached_memory();
  const std::lock_guard lock(attached.mutex);
  std::erase_if(attached.by_nonce, [](const auto& entry) { return entry.second.expired(); });
  if (const auto found = attached.by_nonce.find(address.nonce); found != attached.by_nonce.end()) {
    if (auto memory = found->second.lock()) return memory;
  }
  auto memory = std::make_shared<SharedMemory>(SharedMemory::open(address.pid, address.descriptor));
  std::uint64_t nonce = 0;
  if (memory->size() >= sizeof(nonce)) std::memcpy(&nonce, memory->data(), sizeof(nonce));
  if (nonce != address.nonce) {
    throw Error(str("descriptor ", address.descriptor, " of process ", address.pid,
                    " is not the shared memory that was announced; the process has been replaced"));
  }
  attached.by_nonce[address.nonce] = memory;
  return memory;
}

std::string to_string(const SharedMemoryAddress& address) {
  return str(address.pid, ":", address.descriptor, ":", address.nonce);
}

SharedMemoryAddress parse_shared_memory_address(const std::string& text) {
  const std::vector<std::string> fields = split(text, ':');
  if (fields.size() != 3) throw Error(str("'", text, "' is not the address of shared memory"));
  SharedMemoryAddress address;
  address.pid = static_cast<pid_t>(parse_integer(fields[0], "pid"));
  address.descriptor = static_cast<int>(parse_integer(fields[1], "descriptor"));
  address.nonce = std::stoull(fields[2]);
  return address;
}

std::uint64_t random_nonce() {
  std::uint64_t value = 0;
  while (value == 0) {
    if (getrandom(&value, sizeof(value), 0) != sizeof(value)) {
      throw Error(str("the kernel gave no random number: ", errno_text(errno)));
    }
  }
  return value;
}

}  // namespace rondo
