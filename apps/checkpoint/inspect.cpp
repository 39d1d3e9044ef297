#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/checkpoint/commands.h"
#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"
#include "rondo/format/checkpoint_directory.h"
#include "rondo/format/checkpoint_files.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json describe_file(const fs::path& path) {
  const SafetensorsFile file(path);
  Json tensors = Json::array();
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;
  for (const TensorEntry& t : file.tensors()) {
    tensors.push_back(
        {{"name", t.name}, {"dtype", to_string(t.dtype)}, {"shape", t.shape}, {"bytes", t.bytes()}});
    elements += t.bytes() / element_size(t.dtype);
    bytes += t.bytes();
  }
  return {{"name", path.filename().string()},
          {"elements", elements},
          {"bytes", bytes},
          {"metadata", file.metadata()},
          {"tensors", std::move(tensors)}};
}

Json describe(const fs::path& path) {
  if (fs::is_regular_file(path)) {
    require_intact_if_of_checkpoint(path);
    return {{"path", path.string()}, {"files", Json::array({describe_file(path)})}};
  }
  const fs::path checkpoint = open_checkpoint(path);
  const Manifest manifest = read_manifest(checkpoint);
  Json result{{"path", checkpoint.string()}, {"step", manifest.step}, {"files", Json::array()}};
  for (const FileRecord& record : manifest.files) {
    const fs::path file = checkpoint / record.name;
    if (file.extension() == ".safetensors") {
      result["files"].push_back(describe_file(file));
    } else if (file.extension() == ".json") {
      result["state"] = read_json_file(file);
    }
  }
  return result;
}

void print_description(const Json& description) {
  std::printf("%s\n", shown(description["path"].get<std::string>()).c_str());
  if (description.contains("step")) std::printf("step %lld\n", description["step"].get<long long>());
  for (const Json& file : description["files"]) {
    std::printf("\n%s: %zu tensors, %llu elements, %s\n", shown(file["name"].get<std::string>()).c_str(),
                file["tensors"].size(), file["elements"].get<unsigned long long>(),
                to_string(Bytes{file["bytes"].get<std::uint64_t>()}).c_str());
    for (const Json& t : file["tensors"]) {
      std::printf("  %-48s %-10s [%s]\n", shown(t["name"].get<std::string>()).c_str(),
                  t["dtype"].get<std::string>().c_str(), join(t["shape"], ", ").c_str());
    }
    for (const auto& [key, value] : file["metadata"].items()) {
      std::printf("  %s = %s\n", shown(key).c_str(), shown(value.get<std::string>()).c_str());
    }
  }
  const auto state = description.find("state");
  if (state == description.end()) return;
  // A checkpoint of the caller's own may have another file of JSON.
  const bool has_values = state->is_object() && state->contains("values");
  const std::string values = (has_values ? state->at("values") : *state).dump(2);
  std::printf("\nvalues\n%s\n", printable(values, values.size()).c_str());
}

}  // namespace

Command add_inspect(CLI::App& app) {
  struct Options {
    std::string path;
    std::string json;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("inspect", "List the tensors and values of a checkpoint or safetensors file");
  command->add_option("CHECKPOINT", options->path, "checkpoint, run directory or .safetensors file")
      ->check(existing_path())
      ->required();
  add_json_flag(*command, options->json);
  return {command, [options] {
            const Json description = describe(options->path);
            if (options->json != "-") print_description(description);
            write_json(options->json, description);
            return 0;
          }};
}

}  // namespace rondo
