#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/checkpoint/commands.h"
#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/checkpoint/weights.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// What the destination's name asks for.
enum class Destination { safetensors, archive, checkpoint };

Destination kind_of(const std::string& destination) {
  const std::string extension = fs::path(destination).extension().string();
  if (extension == ".safetensors") return Destination::safetensors;
  if (extension == ".pt" || extension == ".pth") return Destination::archive;
  if (extension.empty() || destination.ends_with('/')) return Destination::checkpoint;
  throw UsageError(
      str("DESTINATION: '", destination,
          "' is none of NAME.safetensors, NAME.pt (for torch::load) and a directory for a checkpoint"));
}

std::string convert(const std::string& source, const std::string& destination, bool overwrite) {
  const Destination kind = kind_of(destination);
  const NamedTensors tensors = read_weights(source);
  if (kind == Destination::checkpoint) {
    TrainingState state;
    state.model = tensors;
    state.values = {{"step", 0}, {"converted_from", source}};
    return save_checkpoint(destination, 0, state, 1).string();
  }
  if (fs::exists(destination)) {
    if (!overwrite)
      throw UsageError(str("DESTINATION: ", destination, " exists; give --overwrite to replace it"));
    if (fs::equivalent(source, destination)) throw UsageError("DESTINATION is SOURCE itself");
  }
  ReplacedFile file(destination, ReplacedFile::Links::follow);
  try {
    kind == Destination::safetensors ? write_tensors(file.temporary(), tensors)
                                     : write_archive(file.temporary(), tensors);
  } catch (const Error& error) {
    throw Error(str("cannot write ", destination, ": ", error.what()));  // which names the temporary file
  }
  file.commit();
  return destination;
}

}  // namespace

Command add_convert(CLI::App& app) {
  struct Options {
    std::string source;
    std::string destination;
    std::string json;
    bool overwrite = false;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "convert", "Convert a model's tensors between checkpoints, safetensors files and torch::save archives");
  command->add_option("SOURCE", options->source, "checkpoint, run directory, .safetensors file or archive")
      ->check(existing_path())
      ->required();
  command
      ->add_option("DESTINATION", options->destination,
                   "NAME.safetensors, NAME.pt for torch::load, or a directory in which step-00000000 is made")
      ->required();
  command->add_flag("--overwrite", options->overwrite, "replace a DESTINATION file that exists");
  add_json_flag(*command, options->json);
  return {command, [options] {
            const std::string written = convert(options->source, options->destination, options->overwrite);
            if (options->json != "-") std::printf("%s\n", written.c_str());
            write_json(options->json, {{"source", options->source}, {"destination", written}});
            return 0;
          }};
}

}  // namespace rondo
