#include "tests/sim/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tests/sim/device.h"

namespace rondo::sim {
namespace {

// Size of the address range; pages are allocated when they are written.
constexpr std::size_t kArenaBytes = std::size_t{64} << 30;
constexpr std::size_t kAlignment = 64;

// Set once, by Arena's constructor, before it returns any device address.
std::uintptr_t device_begin = 0;

void say_fault(int signal, siginfo_t* info, void* /*context*/) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  if (address - device_begin < kArenaBytes) {
    static constexpr char kText[] = "simulated accelerator: the host reads or writes memory of a device\n";
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
  }
  // The instruction runs again, and ends the process as it would without this handler.
  ::signal(signal, SIG_DFL);
}

class Arena {
 public:
  Arena() : owner_(getpid()) {
    const int file = memfd_create("rondo_sim", MFD_CLOEXEC);
    TORCH_CHECK(file >= 0 && ftruncate(file, kArenaBytes) == 0, "simulated accelerator: no memory");
    void* const device = mmap(nullptr, kArenaBytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file, 0);
    void* const host =
        mmap(nullptr, kArenaBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
    close(file);
    TORCH_CHECK(device != MAP_FAILED && host != MAP_FAILED, "simulated accelerator: no addresses");
    device_begin = reinterpret_cast<std::uintptr_t>(device);
    host_ = static_cast<std::byte*>(host);
    struct sigaction action {};
    action.sa_sigaction = say_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
  }

  void* allocate(std::size_t size) {
    TORCH_CHECK(owner_ == getpid(), "simulated accelerator: this process was forked after a device was used");
    size = block_size(size);
    const std::lock_guard lock(mutex_);
    std::vector<std::size_t>& free = free_[size];
    std::size_t place = end_;
    if (!free.empty()) {
      place = free.back();
      free.pop_back();
    } else {
      TORCH_CHECK(size <= kArenaBytes - end_, "simulated accelerator: out of memory");
      end_ += size;
    }
    const std::uintptr_t address = device_begin + place;
    sizes_[address] = size;
    return reinterpret_cast<void*>(address);
  }

  void release(void* address) {
    const std::lock_guard lock(mutex_);
    const auto found = sizes_.find(reinterpret_cast<std::uintptr_t>(address));
    free_[found->second].push_back(found->first - device_begin);
    sizes_.erase(found);
  }

  void* host_address(const void* address) const {
    return host_ + (reinterpret_cast<std::uintptr_t>(address) - device_begin);
  }

 private:
  // Few sizes, so that released blocks can be reused: eight for each power of two.
  static std::size_t block_size(std::size_t size) {
    std::size_t step = kAlignment;
    while (step * 16 < size) step *= 2;
    return (size + step - 1) / step * step;
  }

  const pid_t owner_;
  std::byte* host_ = nullptr;
  std::mutex mutex_;                                      // protects the members below
  std::map<std::size_t, std::vector<std::size_t>> free_;  // offsets by size
  std::map<std::uintptr_t, std::size_t> sizes_;           // blocks in use, by address
  std::size_t end_ = 0;                                   // end of the blocks
};

// Never destroyed: tensors may be released while the process ends.
Arena& arena() {
  static auto* const instance = new Arena;
  return *instance;
}

void release(void* address) { arena().release(address); }

c10::DataPtr allocate_on(std::size_t size, c10::DeviceIndex device) {
  void* const address = size > 0 ? arena().allocate(size) : nullptr;
  return {address, address, address != nullptr ? &release : &c10::detail::deleteNothing, {kSim, device}};
}

class DeviceAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override { return allocate_on(size, current_device()); }
  void copy_data(void* to, const void* from, std::size_t size) const override {
    if (size > 0) std::memcpy(host_address(to), host_address(from), size);
  }
};

}  // namespace

void* host_address(const void* address) {
  return address != nullptr ? arena().host_address(address) : nullptr;
}

c10::DataPtr to_device(const void* content, std::size_t size, c10::DeviceIndex device) {
  c10::DataPtr memory = allocate_on(size, device);
  if (size > 0) std::memcpy(host_address(memory.get()), content, size);
  return memory;
}

c10::Allocator& device_allocator() {
  static auto* const instance = new DeviceAllocator;
  return *instance;
}

}  // namespace rondo::sim
