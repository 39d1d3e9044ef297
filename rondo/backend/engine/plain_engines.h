#pragma once

#include "rondo/options/declaration.h"

namespace rondo {

struct RegisteredBackend;

// An engine without options: what it is called, and how one is made.
template <class Folder>
struct PlainEngine {
  using Options = NoOptions;
  static constexpr bool kInstalledApart = false;
  static Declaration declaration() {
    return {.name = Folder::kName, .summary = Folder::kSummary, .installed_apart = Folder::kInstalledApart};
  }
};

// The table of the engines without options. The folder of each defines engine(); who calls only declaration()
// links no libtorch.
struct GlooFolder : PlainEngine<GlooFolder> {
  static constexpr const char *kName = "gloo", *kSummary = "Gloo over TCP, between hosts";
  static RegisteredBackend engine(const Options& none);
};
struct MpiFolder : PlainEngine<MpiFolder> {
  static constexpr const char *kName = "mpi", *kSummary = "Open MPI, under mpirun";
  static constexpr bool kInstalledApart = true;
  static RegisteredBackend engine(const Options& none);
};
struct NativeFolder : PlainEngine<NativeFolder> {
  static constexpr const char *kName = "native",
                              *kSummary = "rondo's own, through shared memory, on one host";
  static RegisteredBackend engine(const Options& none);
};
struct NcclFolder : PlainEngine<NcclFolder> {
  static constexpr const char *kName = "nccl", *kSummary = "NCCL, between GPUs";
  static constexpr bool kInstalledApart = true;
  static RegisteredBackend engine(const Options& none);
};

}  // namespace rondo
