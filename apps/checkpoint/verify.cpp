#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/checkpoint/commands.h"
#include "apps/common/command_line.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/base/error.h"
#include "rondo/format/checkpoint_files.h"

namespace rondo {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

Json verify(const fs::path& path, bool& is_intact) {
  const fs::path checkpoint = find_checkpoint(path);
  Json result{{"path", checkpoint.string()}, {"intact", true}, {"damage", Json::array()}};
  for (const Damage& d : verify_checkpoint(checkpoint)) {
    result["damage"].push_back({{"file", d.file}, {"tensor", d.tensor}, {"what", d.what}});
  }
  is_intact = result["damage"].empty();
  result["intact"] = is_intact;
  if (is_intact) return result;
  const IntactCheckpoint others = newest_intact_checkpoint(parent_of_checkpoint(checkpoint));
  if (others.newest) result["newest_intact"] = others.newest->path.string();
  result["advice"] = advice_for_damaged(others);
  return result;
}

void print_verdict(const Json& result) {
  const std::string path = shown(result["path"].get<std::string>());
  if (result["intact"].get<bool>()) {
    std::printf("%s: intact\n", path.c_str());
    return;
  }
  for (const Json& d : result["damage"]) {
    const std::string tensor = shown(d["tensor"].get<std::string>());
    std::fprintf(stderr, "%s: %s%s: %s\n", path.c_str(), shown(d["file"].get<std::string>()).c_str(),
                 tensor.empty() ? "" : (", tensor '" + tensor + "'").c_str(),
                 shown(d["what"].get<std::string>()).c_str());
  }
  std::fprintf(stderr, "%s: %s\n", path.c_str(), shown(result["advice"].get<std::string>()).c_str());
}

}  // namespace

Command add_verify(CLI::App& app) {
  struct Options {
    std::string path;
    std::string json;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(
      "verify", "Read every byte and compare it with the manifest; exit code 1 for damage");
  command->add_option("CHECKPOINT", options->path, "checkpoint or run directory")
      ->check(existing_path())
      ->required();
  add_json_flag(*command, options->json);
  return {command, [options] {
            bool is_intact = false;
            const Json result = verify(options->path, is_intact);
            if (options->json != "-" || !is_intact) print_verdict(result);
            write_json(options->json, result);
            return static_cast<int>(is_intact ? ExitCode::ok : ExitCode::failed);
          }};
}

}  // namespace rondo
