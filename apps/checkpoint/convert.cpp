#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/checkpoint/commands.h"
#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/stage_progress.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/checkpoint.h"
#include "rondo/checkpoint/tensor_file.h"
#include "rondo/checkpoint/weights.h"
#include "rondo/format/checkpoint_files.h"
#include "rondo/format/file.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;

// The format that the destination's name selects.
enum class Destination { safetensors, archive, checkpoint };

Destination kind_of(const std::string& destination) {
  const std::string extension = fs::path(destination).extension().string();
  if (extension == ".safetensors") return Destination::safetensors;
  if (extension == ".pt" || extension == ".pth") return Destination::archive;
  if (extension.empty() || destination.ends_with('/')) return Destination::checkpoint;
  throw UsageError(
      str("DESTINATION: '", destination,
          "': expected NAME.safetensors, NAME.pt (for torch::load) or a directory for a checkpoint"));
}

std::string convert(const std::string& source, const std::string& destination, bool overwrite) {
  const Destination kind = kind_of(destination);
  StageProgress stage;
  stage.begin("converting " + source);
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
    throw Error(str("cannot write ", destination, ": ", error.what()));  // it names the temporary file
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
                   "NAME.safetensors, NAME.pt for torch::load, or a directory for a new step-00000000")
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

namespace {

// Assigns each tensor to the part with the fewest bytes so far. Records aliases (several names of one tensor)
// in the first part.
void deal_out(const StoredTensors& tensors, std::vector<CheckpointPart>& parts,
              std::vector<Shard> CheckpointPart::*list) {
  const NamedTensors full = full_tensors(tensors);
  std::map<std::string, std::string> shared = shared_names(full);
  std::vector<std::size_t> bytes(parts.size(), 0);
  for (const NamedTensor& each : full) {
    if (shared.contains(each.name)) continue;
    const auto least = static_cast<std::size_t>(std::min_element(bytes.begin(), bytes.end()) - bytes.begin());
    bytes[least] += each.tensor.nbytes();
    (parts[least].*list).push_back(full_shard(each.name, each.tensor));
  }
  parts.front().shared.merge(shared);
}

bool is_tensor_file(const std::string& name) {
  return name.ends_with(".safetensors") && (name.starts_with("model") || name.starts_with("optimizer"));
}

void copy_file(const fs::path& from, CheckpointWriter& writer, const FileRecord& record) {
  const MappedFile source(from / record.name);
  OutputFile file(writer.directory() / record.name, OutputFile::Mode::create);
  file.write(source.bytes());
  file.sync();
  file.close();
  writer.add(record);
}

std::string reshard(const std::string& source, const std::string& destination, int count) {
  StageProgress stage;
  stage.begin("rewriting " + source);
  const fs::path checkpoint = open_checkpoint(source);
  const Manifest manifest = read_manifest(checkpoint);
  if (fs::exists(fs::path(destination) / checkpoint_name(manifest.step)))
    throw UsageError(str("DESTINATION: ", destination, " already holds ", checkpoint_name(manifest.step)));
  std::vector<CheckpointPart> parts(static_cast<std::size_t>(count));
  for (int number = 0; number < count; ++number) {
    parts[static_cast<std::size_t>(number)].number = number;
    parts[static_cast<std::size_t>(number)].count = count;
  }
  deal_out(stored_tensors(checkpoint, "model"), parts, &CheckpointPart::model);
  deal_out(stored_tensors(checkpoint, "optimizer"), parts, &CheckpointPart::optimizer);
  CheckpointWriter writer(destination, manifest.step);
  for (const CheckpointPart& part : parts) {
    for (FileRecord& record : write_part(writer.directory(), part)) writer.add(std::move(record));
  }
  for (const FileRecord& record : manifest.files) {
    if (!is_tensor_file(record.name)) copy_file(checkpoint, writer, record);
  }
  return writer.commit(INT_MAX).string();
}

struct ReshardOptions {
  std::string source, destination, json;
  int parts = 1;
};

Command add_rewrite(CLI::App& app, const char* name, const char* text, bool has_parts) {
  const auto options = std::make_shared<ReshardOptions>();
  CLI::App* command = app.add_subcommand(name, text);
  command->add_option("SOURCE", options->source, "checkpoint or run directory")
      ->check(existing_path())
      ->required();
  command
      ->add_option("DESTINATION", options->destination,
                   "directory of checkpoints for the result, which has the same step")
      ->required();
  if (has_parts)
    command->add_option("--parts", options->parts, "number of parts")->check(between(1, 99999))->required();
  add_json_flag(*command, options->json);
  return {command, [options] {
            const std::string written = reshard(options->source, options->destination, options->parts);
            if (options->json != "-") std::printf("%s\n", written.c_str());
            write_json(options->json,
                       {{"source", options->source}, {"destination", written}, {"parts", options->parts}});
            return 0;
          }};
}

}  // namespace

Command add_reshard(CLI::App& app) {
  return add_rewrite(app, "reshard", "Rewrite a checkpoint with another number of parts", true);
}

Command add_merge(CLI::App& app) {
  return add_rewrite(app, "merge", "Merge the parts of a checkpoint into a whole one", false);
}

}  // namespace rondo
