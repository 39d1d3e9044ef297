#pragma once

#include <string>
#include <vector>

#include "rondo/options/declaration.h"

namespace rondo {

// An engine as users name it: "hierarchical(native, gloo, window=3)". Free of libtorch.
struct EngineText {
  std::string name;                         // name of the engine: "hierarchical", or "path/to/module.so:name"
  std::vector<std::string> arguments = {};  // arguments in the parentheses after the name
};

// Type of an option whose value is an engine expression such as "hierarchical(native, gloo)", which may
// contain parentheses.
inline constexpr const char* kEngineOption = "ENGINE";
// Type of an option whose value is a name for collective::make_codec(), or of a communication hook.
inline constexpr const char* kCodecOption = "CODEC";

// Returns the engine that "auto" selects, by whether the job is on one host.
std::string engine_of_auto(bool one_host);

// Parses `text`. Throws UsageError for unbalanced brackets.
EngineText split_engine(const std::string& text);

// Returns whether the engine comes from a shared module (engine/module.h), which parses its arguments itself.
bool is_of_module(const EngineText& engine);

// Returns the values of the options of `declared` in the arguments. "key=value" sets the option of that name,
// or the only one whose name ends with it ("window" for inter-host-window), with '_' or '-'; an argument
// without a key sets the option at its position in the declaration. Throws UsageError naming an argument
// without an option, and an option that is set twice. Does not check values.
OptionValues options_in_brackets(const EngineText& engine, const Declaration& declared);

// Returns text that split_engine() and options_in_brackets() parse into this name and these options.
std::string engine_with_options(const std::string& name, const OptionValues& options);

// Throws UsageError, beginning with `what`, unless `text` is "auto", one of `engines` with options that it
// takes, or an engine of a shared module, which is not checked. Engines in options are checked too.
void check_engine(const std::string& text, const std::string& what, const std::vector<Declaration>& engines);

struct RegisteredBackend;

// Base of an engine without options: its declaration.
template <class Factory>
struct PlainEngine {
  using Options = NoOptions;
  static constexpr bool kInstalledApart = false;
  static Declaration declaration() {
    return {
        .name = Factory::kName, .summary = Factory::kSummary, .installed_apart = Factory::kInstalledApart};
  }
};

// The table of the engines without options. The folder of each defines engine(); a program that calls only
// declaration() links no libtorch.
struct GlooEngineFactory : PlainEngine<GlooEngineFactory> {
  static constexpr const char *kName = "gloo", *kSummary = "Gloo over TCP, between hosts";
  static RegisteredBackend engine(const Options& none);
};
struct MpiEngineFactory : PlainEngine<MpiEngineFactory> {
  static constexpr const char *kName = "mpi", *kSummary = "Open MPI, under mpirun";
  static constexpr bool kInstalledApart = true;
  static RegisteredBackend engine(const Options& none);
};
struct NativeEngineFactory : PlainEngine<NativeEngineFactory> {
  static constexpr const char *kName = "native",
                              *kSummary = "rondo's own, through shared memory, on one host";
  static RegisteredBackend engine(const Options& none);
};
struct NcclEngineFactory : PlainEngine<NcclEngineFactory> {
  static constexpr const char *kName = "nccl", *kSummary = "NCCL, between GPUs";
  static constexpr bool kInstalledApart = true;
  static RegisteredBackend engine(const Options& none);
};

}  // namespace rondo
