#include <dlfcn.h>

#include <array>
#include <vector>

#include "checks.h"
#include "rondo/base/bytes.h"
#include "rondo/base/text.h"
#include "rondo/launch/devices.h"

namespace doctor {
namespace {

using rondo::Bytes;
using rondo::str;

struct Card {
  std::string name;
  Bytes total;
  Bytes free;
};

struct Cards {
  std::vector<Card> cards;
  std::string driver;
  std::string problem;  // empty: none
};

// NVIDIA's management library, which comes with the driver. Programs without CUDA ask it for cards.
class ManagementLibrary {
 public:
  ManagementLibrary() : library_(dlopen("libnvidia-ml.so.1", RTLD_LAZY | RTLD_LOCAL)) {}
  ManagementLibrary(const ManagementLibrary&) = delete;
  ManagementLibrary& operator=(const ManagementLibrary&) = delete;
  ~ManagementLibrary() {
    if (library_ != nullptr) dlclose(library_);
  }

  bool found() const { return library_ != nullptr; }

  Cards list() const {
    Cards found;
    if (const int error = call<int()>("nvmlInit_v2"); error != 0) {
      found.problem = str("the driver does not answer (NVML error ", error, ")");
      return found;
    }
    std::array<char, 96> text{};
    if (call<int(char*, unsigned)>("nvmlSystemGetDriverVersion", text.data(), text.size()) == 0)
      found.driver = text.data();
    unsigned count = 0;
    call<int(unsigned*)>("nvmlDeviceGetCount_v2", &count);
    for (unsigned index = 0; index < count; ++index) {
      void* card = nullptr;
      Memory memory;
      if (call<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2", index, &card) != 0) {
        found.problem = str("card ", index, " does not answer");
        continue;
      }
      text.front() = '\0';
      call<int(void*, char*, unsigned)>("nvmlDeviceGetName", card, text.data(), text.size());
      call<int(void*, Memory*)>("nvmlDeviceGetMemoryInfo", card, &memory);
      found.cards.push_back({text.data(), Bytes{memory.total}, Bytes{memory.free}});
    }
    call<int()>("nvmlShutdown");
    return found;
  }

 private:
  // nvmlMemory_t.
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;
  };

  // Calls a function of the library; one that it lacks fails.
  template <class Function, class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    auto* const function = reinterpret_cast<Function*>(dlsym(library_, name));
    return function == nullptr ? -1 : function(arguments...);
  }

  void* library_;
};

}  // namespace

Finding check_gpus() {
  const int visible = rondo::launch::gpu_count();
  const ManagementLibrary management;
  const Cards found = management.found() ? management.list() : Cards{};
  nlohmann::json cards = nlohmann::json::array();
  std::vector<std::string> texts;
  for (const Card& card : found.cards) {
    cards.push_back(
        {{"name", card.name}, {"total_bytes", card.total.count}, {"free_bytes", card.free.count}});
    texts.push_back(str(card.name, ", ", to_string(card.total), ", ", to_string(card.free), " free"));
  }
  const std::string driver = found.driver.empty() ? first_line("/proc/driver/nvidia/version") : found.driver;
  Finding finding{"machine", "GPUs", State::ok,
                  "",        "",     {{"count", visible}, {"driver", driver}, {"cards", cards}}};
  finding.detail = visible == 0 ? "none seen (/dev/nvidia*)" : str(visible, " visible");
  if (!texts.empty()) finding.detail += str("; cards: ", rondo::join(texts, "; "));
  if (!driver.empty()) finding.detail += str("; driver ", driver);
  if (!found.problem.empty()) {
    finding.state = State::warning;
    finding.detail += str("; ", found.problem);
    finding.get = "nvidia-smi says more";
  }
  return finding;
}

}  // namespace doctor
