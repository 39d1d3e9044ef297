#pragma once

#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

// How an engine is named by users: "hierarchical(native, gloo, window=3)". Without libtorch.
struct EngineText {
  std::string name;                         // "hierarchical", or "path/to/module.so:name"
  std::vector<std::string> arguments = {};  // what stands in brackets behind it
};

// The type of an option that holds an engine as text, which may have brackets of its own.
inline constexpr const char* kEngineOption = "ENGINE";

// What "auto" stands for, by whether the job is on one host.
std::string engine_of_auto(bool one_host);

// Takes a text apart. Throws UsageError for brackets that are not closed.
EngineText split_engine(const std::string& text);

// Whether the engine comes from a shared module (engine/module.h), which reads its arguments itself.
bool is_of_module(const EngineText& engine);

// What the arguments say of the options that `declared` has. "key=value" is the option of that name, or the
// only one whose name ends with it ("window" for inter-host-window), with '_' or '-'; an argument without a
// key is the option that stands at its place in the declaration. Throws UsageError naming an argument for
// which there is no option, and an option that is told two things. Values are not looked at.
OptionValues options_in_brackets(const EngineText& engine, const Declaration& declared);

// The text that split_engine() and options_in_brackets() read as these.
std::string engine_with_options(const std::string& name, const OptionValues& options);

// Throws UsageError, which begins with `what`, unless `text` is "auto", one of `engines` with options that it
// takes, or one of a shared module, which is not looked at. Engines in options are checked too.
void check_engine(const std::string& text, const std::string& what, const std::vector<Declaration>& engines);

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
