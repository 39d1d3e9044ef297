#include "rondo/device/cards.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <dlfcn.h>
#include <link.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <typeinfo>

#include "rondo/base/error.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// NVIDIA's driver, without its headers. The library stays loaded, because libtorch uses it too.
class CudaDriver {
 public:
  CudaDriver() : library_(dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    if (library_ == nullptr) return;
    const auto start = function<int(unsigned)>("cuInit");
    if (start == nullptr || start(0) != 0) library_ = nullptr;
  }

  // Returns the number of cards; 0 without a driver.
  int card_count() const {
    int count = 0;
    const auto ask = function<int(int*)>("cuDeviceGetCount");
    return ask != nullptr && ask(&count) == 0 ? count : 0;
  }

  // Returns "NVIDIA H100 80GB HBM3 at PCI 0000:1B:00.0"; empty if the driver does not report it.
  std::string card(int index) const {
    int handle = 0;
    std::array<char, 256> name{};
    std::array<char, 32> address{};
    const auto find = function<int(int*, int)>("cuDeviceGet");
    const auto ask_name = function<int(char*, int, int)>("cuDeviceGetName");
    const auto ask_address = function<int(char*, int, int)>("cuDeviceGetPCIBusId");
    if (find == nullptr || ask_name == nullptr || ask_address == nullptr || find(&handle, index) != 0 ||
        ask_name(name.data(), static_cast<int>(name.size()) - 1, handle) != 0 ||
        ask_address(address.data(), static_cast<int>(address.size()) - 1, handle) != 0)
      return {};
    return str(name.data(), " at PCI ", address.data());
  }

 private:
  template <class Function>
  Function* function(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function*>(dlsym(library_, name));
  }

  void* library_;
};

// Returns the path of libtorch's CUDA library beside the libtorch of this process; empty for a CPU build.
std::string cuda_library() {
  void* const torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  if (torch == nullptr) return {};
  link_map* loaded = nullptr;
  std::filesystem::path library;
  if (dlinfo(torch, RTLD_DI_LINKMAP, static_cast<void*>(&loaded)) == 0)
    library = std::filesystem::path(loaded->l_name).parent_path() / "libtorch_cuda.so";
  dlclose(torch);
  std::error_code ignored;
  return std::filesystem::exists(library, ignored) ? library.string() : std::string();
}

bool cuda_is_loaded() { return c10::impl::hasDeviceGuardImpl(c10::kCUDA); }

void load_library_of_cuda() {
  const std::string library = cuda_library();
  if (library.empty()) throw UsageError("this libtorch is a CPU build, without CUDA");
  // RTLD_GLOBAL makes the library's symbols visible to modules, as if the program linked the library.
  if (dlopen(library.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    throw UsageError(str("libtorch's CUDA library cannot be loaded: ", dlerror(),
                         "; install what it needs (a CUDA wheel of torch brings it), or use --device cpu"));
  }
  if (!cuda_is_loaded())
    throw UsageError(
        str(library, " was loaded, but it registered no CUDA devices; does it belong to the same libtorch?"));
}

}  // namespace

int driver_card_count() { return CudaDriver().card_count(); }

bool is_cuda_build() { return cuda_is_loaded() || !cuda_library().empty(); }

void load_cuda() {
  static std::mutex mutex;  // held while the library registers its kernels
  const std::lock_guard lock(mutex);
  if (!cuda_is_loaded()) load_library_of_cuda();
  // libtorch creates its hooks at the first query; without the library they do not support CUDA.
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  if (typeid(hooks) == typeid(at::CUDAHooksInterface)) {
    throw Error(
        "libtorch looked for CUDA before its CUDA library was loaded and cached that there is none; give "
        "--device cuda (in your own program, call rondo::init with the device before torch::manual_seed, or "
        "link libtorch_cuda)");
  }
}

std::string card_of(c10::Device device) {
  const std::string card = device.is_cuda() ? CudaDriver().card(device.index()) : std::string();
  if (!card.empty()) return str(card, " of host ", host_name());
  // The same device number means another card if the ranks' variables differ.
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? device.str() : str(device.str(), " of CUDA_VISIBLE_DEVICES=", visible);
}

}  // namespace rondo
