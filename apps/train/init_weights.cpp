#include "apps/train/init_weights.h"

#include <filesystem>
#include <iostream>
#include <optional>

#include "apps/train/flag_error.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/checkpoint/pretrained.h"
#include "rondo/checkpoint/weights.h"

namespace rondo {

void load_init_weights(const std::string& folder, const Model& model, const PretrainedNames& names,
                       bool say) {
  const std::optional<std::filesystem::path> file = weights_in_folder(folder);
  if (!file) {
    throw DataError(str("--from-pretrained ", folder,
                        " has no model.safetensors and no model.safetensors.index.json; in Python: "
                        "model.save_pretrained(FOLDER, safe_serialization=True)"));
  }
  const PretrainedReport report = load_pretrained(*file, named_tensors(*model.module), names);
  if (!say) return;
  if (!report.missing_parts.empty())
    std::cerr << "newly initialised, not in " << file->string() << ": " << join(report.missing_parts, " ")
              << "\n";
  if (!report.unused.empty())
    std::cerr << "not used of " << file->string() << ": " << join(report.unused, " ") << "\n";
}

void load_given_weights(const TrainFlags& flags, const Model& model, bool say) {
  const bool is_partial = !flags.init_rename.empty() || !flags.init_strict;
  if (flags.init_weights.empty()) {
    if (is_partial)
      throw UsageError("init-rename and --init-strict=false have no effect without --init-from");
    return;
  }
  const NamedTensors tensors = named_tensors(*model.module);
  if (!is_partial) {
    load_weights(flags.init_weights, tensors);
    return;
  }
  std::vector<RenameRule> rules;
  for (const std::string& text : flags.init_rename)
    rules.push_back(use_flag("init-rename", text, [&] { return parse_rename_rule(text); }));
  const WeightsReport report = load_partial_weights(flags.init_weights, tensors, rules, !flags.init_strict);
  if (say) std::cerr << flags.init_weights << ": " << to_text(report) << "\n";
}

}  // namespace rondo
