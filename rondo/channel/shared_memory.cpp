#include "rondo/channel/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// Closes a descriptor unless ownership was released.
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
  // MAP_NORESERVE: a large sparse file must not count against the commit limit before it is used.
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
  // Some kernels do not support this for shared memory; then pages are allocated on first use.
  if (error == 0 || error == EOPNOTSUPP || error == ENOSYS) return;
  throw Error(str("not enough memory for ", what, ": the system gives no ", to_string(Bytes{length}),
                  " of shared memory: ", errno_text(error),
                  ". Free memory, raise the limit (memory.max of the cgroup, vm.overcommit_memory, the size "
                  "of the file system that the file is in), or start fewer or smaller processes"));
}

void SharedMemory::map_pages(std::size_t offset, std::size_t length) const {
  // An older kernel does not support it; then each page is mapped on first use.
  madvise(data_ + offset, length, MADV_POPULATE_WRITE);
}

void SharedMemory::discard(std::size_t offset, std::size_t length) const {
  fallocate(descriptor_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(length));
}

void SharedMemory::make_private() const {
  // Replaces a mapping of the same size, without a reservation, so the kernel does not refuse it.
  static_cast<void>(
      mmap(data_, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, descriptor_, 0));
}

namespace {

// Mappings of this process by nonce. Two mappings of one file would be correct too; sharing one saves address
// space, and lets a race detector see that ranks which are threads access the same memory.
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
      throw Error(str("the kernel returned no random number: ", errno_text(errno)));
    }
  }
  return value;
}

namespace fs = std::filesystem;
namespace {

// Reads a file with one number; returns nullopt for "max" and for a missing file.
std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// Reads the number after `key` in a file of lines "key number".
std::uint64_t read_field(const fs::path& path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream fields(line);
    fields.imbue(std::locale::classic());
    std::string name;
    std::uint64_t value = 0;
    if (fields >> name >> value && name == key) return value;
  }
  return 0;
}

// File names of one version of control groups.
struct Files {
  const char* mount;
  const char* limit;
  const char* usage;
  const char* droppable;  // key in memory.stat
};
constexpr Files kVersion1{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
                          "total_inactive_file"};
constexpr Files kVersion2{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"};

class Search {
 public:
  explicit Search(fs::path root) : root_(std::move(root)) {
    const fs::path info = root_ / "proc/meminfo";
    swap_ = read_field(info, "SwapFree:") << 10;
    if (const std::uint64_t available = read_field(info, "MemAvailable:") << 10; available > 0)
      consider(available + swap_, str("what this host has free, ", to_string(Bytes{available + swap_})));
  }

  // Considers the group at `path` and its ancestors. In a container the path may be the host's and not exist.
  void look_at_groups(const Files& files, fs::path path) {
    const fs::path mount = root_ / files.mount;
    path = path.relative_path();
    while (true) {
      look_at_group(files, mount / path, "/" + path.string());
      if (path.empty()) return;
      path = path.parent_path();
    }
  }

  const MemoryRoom& least() const { return least_; }

 private:
  void look_at_group(const Files& files, const fs::path& group, const std::string& name) {
    const auto limit = read_number(group / files.limit);
    const auto usage = read_number(group / files.usage);
    if (!limit || !usage) return;
    const std::uint64_t droppable = read_field(group / "memory.stat", files.droppable);
    const std::uint64_t used = *usage - std::min(*usage, droppable);
    const std::uint64_t room = *limit - std::min(*limit, used);
    // Version 1 reports "no limit" as a number near the maximum.
    if (room < std::uint64_t{1} << 60)
      consider(room + swap_, str("the memory limit of cgroup ", name, ", ", to_string(Bytes{*limit}),
                                 " with ", to_string(Bytes{used}), " in use"));
  }

  void consider(std::uint64_t room, std::string limit) {
    if (room < least_.bytes.count) least_ = {Bytes{room}, std::move(limit)};
  }

  fs::path root_;
  std::uint64_t swap_ = 0;
  MemoryRoom least_;
};

}  // namespace

MemoryRoom memory_room(const fs::path& root) {
  Search search(root);
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::vector<std::string> controllers = split(line.substr(first + 1, second - first - 1), ',');
    const std::string path = line.substr(second + 1);
    if (line.starts_with("0::")) search.look_at_groups(kVersion2, path);
    if (std::find(controllers.begin(), controllers.end(), "memory") != controllers.end())
      search.look_at_groups(kVersion1, path);
  }
  return search.least();
}

void require_room(Bytes size, const std::string& what, const MemoryRoom& room) {
  if (size <= room.bytes) return;
  throw Error(
      str("not enough memory for ", what, ": ", to_string(size), " are needed, ", to_string(room.bytes),
          " are left by ", room.limit,
          ". Raise it (docker run --memory, Kubernetes' resources.limits.memory, memory.max of the cgroup), "
          "or start fewer or smaller processes. /dev/shm and docker's --shm-size do not matter here"));
}

namespace {

constexpr std::size_t kPage = 4096;
// Size of cached pages that is always kept.
constexpr std::size_t kLeastCache = std::size_t{256} << 20;

constexpr std::size_t round_up(std::size_t value, std::size_t step) {
  return (value + step - 1) / step * step;
}

}  // namespace

SharedArena::SharedArena(Bytes reserve)
    : published_(publish_shared_memory("rondo-arena", reserve)), next_(kPage) {}

std::size_t SharedArena::size_class(std::size_t bytes) {
  if (bytes <= (std::size_t{64} << 10)) return round_up(std::max<std::size_t>(bytes, 1), kPage);
  if (bytes <= (std::size_t{1} << 20)) return round_up(bytes, std::size_t{64} << 10);
  return round_up(bytes, std::bit_floor(bytes) / 8);
}

// Requires mutex_.
void SharedArena::require_pages(std::size_t offset, std::size_t size) {
  const std::string what = str("a tensor of ", to_string(Bytes{size}), " in registered memory");
  if (size > known_room_) {
    const MemoryRoom room = memory_room();
    require_room(Bytes{size}, what, room);
    // A check costs more than a small allocation, so an eighth of the room is used before the next check.
    known_room_ = std::max<std::size_t>(room.bytes.count / 8, size);
  }
  known_room_ -= size;
  published_.memory->commit(offset, size, what);
}

void* SharedArena::allocate(std::size_t bytes) {
  const std::size_t size = size_class(bytes);
  const std::lock_guard lock(mutex_);
  std::size_t offset = 0;
  if (auto cached = cached_.find(size); cached != cached_.end() && !cached->second.empty()) {
    offset = cached->second.back();
    cached->second.pop_back();
    usage_.cached_bytes -= size;
  } else if (auto discarded = discarded_.find(size);
             discarded != discarded_.end() && !discarded->second.empty()) {
    offset = discarded->second.back();
    require_pages(offset, size);
    discarded->second.pop_back();
  } else {
    if (size > published_.memory->size() - next_) return nullptr;
    require_pages(next_, size);
    offset = next_;
    next_ += size;
  }
  allocated_[offset] = size;
  usage_.used_bytes += size;
  usage_.peak_bytes = std::max(usage_.peak_bytes, usage_.used_bytes);
  return published_.memory->data() + offset;
}

void SharedArena::release(void* pointer) {
  const std::lock_guard lock(mutex_);
  const auto found = allocated_.find(offset(pointer));
  if (found == allocated_.end()) throw Error("released a block that this arena did not hand out");
  const auto [block, size] = *found;
  allocated_.erase(found);
  usage_.used_bytes -= size;
  if (usage_.cached_bytes + size > std::max(kLeastCache, usage_.peak_bytes)) {
    published_.memory->discard(block, size);
    discarded_[size].push_back(block);
  } else {
    usage_.cached_bytes += size;
    cached_[size].push_back(block);
  }
}

bool SharedArena::contains(const void* pointer) const {
  const auto* at = static_cast<const std::byte*>(pointer);
  return at >= published_.memory->data() && at < published_.memory->data() + published_.memory->size();
}

std::uint64_t SharedArena::offset(const void* pointer) const {
  return static_cast<std::uint64_t>(static_cast<const std::byte*>(pointer) - published_.memory->data());
}

SharedArena::Usage SharedArena::usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

}  // namespace rondo
