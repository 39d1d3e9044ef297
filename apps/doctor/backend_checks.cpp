#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <vector>

#include "checks.h"
#include "rondo/backend/engine/engine_text.h"
#include "rondo/backend/engine/nccl_module.h"
#include "rondo/backend/engine_factories.h"
#include "rondo/base/bytes.h"
#include "rondo/base/process.h"
#include "rondo/base/text.h"
#include "rondo/launch/host_resources.h"

namespace doctor {
namespace {

namespace fs = std::filesystem;
using rondo::NcclVersion;
using rondo::str;

// Returns the NCCL beside libtorch: in its folder, or in a CUDA wheel's packages.
fs::path nccl_library(const fs::path& libtorch) {
  std::error_code none;
  for (const fs::path& folder : {libtorch / "lib", libtorch.parent_path() / "nvidia" / "nccl" / "lib"}) {
    for (const auto& entry : fs::directory_iterator(folder, none)) {
      if (entry.path().filename().string().starts_with("libnccl.so")) return entry.path();
    }
  }
  return {};
}

// Returns the library's version; empty if the library does not load or does not report it.
std::optional<NcclVersion> nccl_version(const fs::path& library) {
  void* const loaded = library.empty() ? nullptr : dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (loaded == nullptr) return std::nullopt;
  int version = 0;
  auto* const ask = reinterpret_cast<int (*)(int*)>(dlsym(loaded, "ncclGetVersion"));
  if (ask == nullptr || ask(&version) != 0 || version <= 0) return std::nullopt;
  return rondo::nccl_version_of(version);
}

// Returns the version whose headers the module was compiled with; empty in a build without NCCL.
std::optional<NcclVersion> nccl_version_of_build() {
  const std::vector<std::string> numbers = rondo::split(RONDO_NCCL_VERSION, '.');
  if (numbers.size() != 3) return std::nullopt;
  return NcclVersion{std::atoi(numbers[0].c_str()), std::atoi(numbers[1].c_str()),
                     std::atoi(numbers[2].c_str())};
}

// Loads libtorch's CUDA library and rondo's module on it, as a training on GPUs does. Returns an empty text
// or the error.
std::string nccl_load_error(const fs::path& libtorch, const std::string& module) {
  for (const std::string& library : {(libtorch / "lib" / "libtorch_cuda.so").string(), module}) {
    if (dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL) == nullptr) return dlerror();
  }
  return {};
}

// The reason why an engine cannot be used, and the remedy; empty if it can be used.
struct Obstacle {
  std::string why{};
  std::string get{};
};

Obstacle nccl_obstacle(const nlohmann::json& torch, const fs::path& library,
                       const std::optional<NcclVersion>& version) {
  const char* const machine =
      "a machine with GPUs, and a CUDA build of libtorch (a CUDA wheel of torch carries NCCL)";
  const fs::path directory = torch.value("directory", "");
  const std::string module = rondo::find_module(rondo::kNcclModule);
  const std::optional<NcclVersion> built = nccl_version_of_build();
  if (!torch.value("cuda", false)) return {"this libtorch has no CUDA", machine};
  if (library.empty()) {
    return {"libnccl was not found beside libtorch",
            built ? str("pip install nvidia-nccl-cu13==", built->text(), ", of which this rondo was built")
                  : machine};
  }
  if (module.empty()) {
    return {"left out of this build: as in packages, or without the headers of NCCL and CUDA",
            "pip install nvidia-cuda-crt nvidia-cuda-cccl beside the CUDA wheel, then build with "
            "-DRONDO_NCCL=REQUIRED, which says what is missing"};
  }
  if (built && version) {
    if (std::string mismatch = rondo::nccl_mismatch(*built, *built, *version); !mismatch.empty())
      return {std::move(mismatch), str("pip install nvidia-nccl-cu13==", built->text())};
  }
  if (!torch.value("loads", false)) return {"needs libtorch, which does not load", "see libtorch above"};
  if (const std::string error = nccl_load_error(directory, module); !error.empty())
    return {str("it cannot be loaded: ", error),
            "a CUDA wheel of torch with the libraries that it depends on"};
  if (rondo::launch::gpu_count() == 0) return {"no GPU is visible", machine};
  return {};
}

// Checks engine nccl: the build, libtorch, and NCCL's version.
Finding check_nccl(const Findings& libtorch) {
  const nlohmann::json& torch = libtorch.front().data;
  const fs::path library =
      torch.value("cuda", false) ? nccl_library(torch.value("directory", "")) : fs::path();
  const std::optional<NcclVersion> version = nccl_version(library);
  const Obstacle obstacle = nccl_obstacle(torch, library, version);
  const bool available = obstacle.why.empty();
  Finding finding{"backends",
                  "nccl",
                  available ? State::ok : State::missing,
                  available ? "between GPUs, one rank a GPU" : obstacle.why,
                  obstacle.get,
                  {{"available", available},
                   {"compiled_in", rondo::have_nccl()},
                   {"built_with", RONDO_NCCL_VERSION},
                   {"version", version ? version->text() : ""}}};
  if (version) finding.detail += str("; NCCL ", version->text());
  return finding;
}

// Returns true for engines that a build or a machine may lack, which check_backends() checks. The other
// engines only need libtorch.
bool has_needs_of_its_own(const std::string& engine) {
  return engine == "gloo" || engine == "mpi" || engine == "nccl";
}

bool consists_of_others(const rondo::Declaration& engine) {
  for (const rondo::Option& option : engine.options.options()) {
    if (option.type == rondo::kEngineOption) return true;
  }
  return false;
}

}  // namespace

Findings check_backends(const Findings& libtorch) {
  Findings findings;
  const nlohmann::json& torch = libtorch.front().data;
  const bool loads = torch.value("loads", false);
  const auto add = [&](const std::string& name, bool available, const std::string& detail,
                       const std::string& get) {
    findings.push_back({"backends",
                        name,
                        available ? State::ok : State::missing,
                        detail,
                        available ? "" : get,
                        {{"available", available}}});
  };
  const char* const without_libtorch = "needs libtorch, which does not load";
  for (const rondo::Declaration& engine : rondo::declared_engines()) {
    if (!has_needs_of_its_own(engine.name) && !consists_of_others(engine))
      add(engine.name, loads, loads ? engine.summary : without_libtorch, "see libtorch above");
  }
  const bool gloo = RONDO_HAVE_GLOO != 0;
  add("gloo", gloo && loads,
      !gloo   ? "left out of this build: Gloo's headers were not found"
      : loads ? "TCP, for one host or several"
              : without_libtorch,
      gloo ? "see libtorch above" : "apt-get install libgloo-dev, then build again");
  const std::string mpirun = which("mpirun");
  const bool module = !rondo::find_module("rondo_mpi.so").empty();
  add("mpi", module && !mpirun.empty() && loads,
      !module          ? "rondo_mpi.so was not built: Open MPI's headers were not found"
      : mpirun.empty() ? "no mpirun"
                       : str("for ranks started by ", mpirun),
      module ? "apt-get install openmpi-bin, to start ranks with mpirun"
             : "make setup-peers, then build again; under mpirun native and gloo work too");
  findings.push_back(check_nccl(libtorch));
  return findings;
}

}  // namespace doctor

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
  std::string problem;  // empty: no problem
};

// NVIDIA's management library, which the driver installs. Programs without CUDA can query GPUs through it.
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
  // Same layout as nvmlMemory_t.
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;
  };

  // Calls a function of the library; returns an error if the library lacks it.
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
  finding.detail = visible == 0 ? "none found (/dev/nvidia*)" : str(visible, " visible");
  if (!texts.empty()) finding.detail += str("; cards: ", rondo::join(texts, "; "));
  if (!driver.empty()) finding.detail += str("; driver ", driver);
  if (!found.problem.empty()) {
    finding.state = State::warning;
    finding.detail += str("; ", found.problem);
    finding.get = "run nvidia-smi for details";
  }
  return finding;
}

}  // namespace doctor
