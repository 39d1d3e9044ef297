#include <dlfcn.h>

#include <filesystem>

#include "checks.h"
#include "rondo/base/text.h"
#include "rondo/launch/devices.h"

namespace doctor {
namespace {

namespace fs = std::filesystem;
using rondo::str;

// Beside the programs, or in lib/ beside their folder.
bool has_mpi_module() {
  std::error_code ignored;
  const auto programs = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return std::filesystem::exists(programs / "rondo_mpi.so", ignored) ||
         std::filesystem::exists(programs / "../lib/rondo_mpi.so", ignored);
}

// NCCL beside libtorch: in its folder, or in that of a CUDA wheel's packages.
fs::path nccl_library(const fs::path& libtorch) {
  std::error_code none;
  for (const fs::path& folder : {libtorch / "lib", libtorch.parent_path() / "nvidia" / "nccl" / "lib"}) {
    for (const auto& entry : fs::directory_iterator(folder, none)) {
      if (entry.path().filename().string().starts_with("libnccl.so")) return entry.path();
    }
  }
  return {};
}

// "2.28.9"; empty where the library does not load or does not say.
std::string nccl_version(const fs::path& library) {
  void* const loaded = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (loaded == nullptr) return {};
  int version = 0;
  auto* const ask = reinterpret_cast<int (*)(int*)>(dlsym(loaded, "ncclGetVersion"));
  if (ask == nullptr || ask(&version) != 0 || version <= 0) return {};
  // As NCCL counts from 2.9 on: 22809.
  return str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// Engine nccl: what this build and libtorch have, and NCCL's version.
Finding check_nccl(const Findings& libtorch) {
  const nlohmann::json& torch = libtorch.front().data;
  const bool compiled_in = RONDO_HAVE_NCCL != 0;
  const bool cuda = torch.value("cuda", false);
  const fs::path library = cuda ? nccl_library(torch.value("directory", "")) : fs::path();
  const std::string version = library.empty() ? "" : nccl_version(library);
  const int gpus = rondo::launch::gpu_count();
  const bool available = compiled_in && !library.empty() && gpus > 0 && torch.value("loads", false);
  Finding finding{
      "backends", "nccl", available ? State::ok : State::missing,
      "",         "",     {{"available", available}, {"compiled_in", compiled_in}, {"version", version}}};
  finding.detail = !cuda             ? "this libtorch has no CUDA"
                   : library.empty() ? "libnccl was not found beside libtorch"
                   : !compiled_in    ? "left out of this build: its headers, or CUDA's, were not found"
                   : gpus == 0       ? "no GPU is visible"
                                     : "between GPUs, one rank a GPU";
  if (!version.empty()) finding.detail += str("; NCCL ", version);
  if (available) return finding;
  finding.get =
      cuda && !library.empty() && !compiled_in
          ? "pip install nvidia-cuda-crt nvidia-cuda-cccl beside the CUDA wheel, then build with "
            "-DRONDO_NCCL=REQUIRED, which says what is missing"
          : "a machine with GPUs, and a CUDA build of libtorch (a CUDA wheel of torch carries NCCL)";
  return finding;
}

}  // namespace

Findings check_backends(const Findings& libtorch) {
  Findings findings;
  const nlohmann::json& torch = libtorch.front().data;
  const bool loads = torch.value("loads", false);
  const auto add = [&](const char* name, bool available, const std::string& detail, const std::string& get) {
    findings.push_back({"backends",
                        name,
                        available ? State::ok : State::missing,
                        detail,
                        available ? "" : get,
                        {{"available", available}}});
  };
  const char* const without_libtorch = "needs libtorch, which does not load";
  add("native", loads, loads ? "shared memory, for the processes of one host" : without_libtorch,
      "see libtorch above");
  const bool gloo = RONDO_HAVE_GLOO != 0;
  add("gloo", gloo && loads,
      !gloo   ? "left out of this build: Gloo's headers were not found"
      : loads ? "TCP, for one host or several"
              : without_libtorch,
      gloo ? "see libtorch above" : "apt-get install libgloo-dev, then build again");
  const std::string mpirun = which("mpirun");
  const bool module = has_mpi_module();
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
