#include <filesystem>

#include "checks.h"
#include "rondo/base/text.h"
#include "rondo/launch/devices.h"

namespace doctor {
namespace {

using rondo::str;

bool has_file_starting_with(const std::string& directory, const std::string& start) {
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(directory, none)) {
    if (entry.path().filename().string().starts_with(start)) return true;
  }
  return false;
}

// NCCL comes inside a CUDA wheel, beside torch's own folder.
bool has_nccl(const std::string& libtorch) {
  const std::filesystem::path directory = libtorch;
  return has_file_starting_with(directory / "lib", "libnccl") ||
         has_file_starting_with(directory.parent_path() / "nvidia" / "nccl" / "lib", "libnccl");
}

// Beside the programs, or in lib/ beside their folder.
bool has_mpi_module() {
  std::error_code ignored;
  const auto programs = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  return std::filesystem::exists(programs / "rondo_mpi.so", ignored) ||
         std::filesystem::exists(programs / "../lib/rondo_mpi.so", ignored);
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
  const bool cuda = torch.value("cuda", false);
  const bool nccl = cuda && has_nccl(torch.value("directory", ""));
  const int gpus = rondo::launch::gpu_count();
  add("nccl", nccl && gpus > 0 && loads,
      !cuda       ? "this libtorch has no CUDA"
      : !nccl     ? "libnccl was not found beside libtorch"
      : gpus == 0 ? "no GPU is visible"
                  : "between GPUs",
      "a machine with GPUs, and a CUDA build of libtorch (a CUDA wheel of torch carries NCCL)");
  return findings;
}

}  // namespace doctor
