#include "apps/bench/step/variant.h"

#include <CLI/CLI.hpp>
#include <filesystem>

#include "apps/common/flag_checks.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/registry.h"

namespace rondo::bench {

Variant parse_variant(const std::string& text) {
  Variant variant;
  CLI::App app;
  app.add_option("strategy", variant.strategy)->required();
  app.add_option("--plan", variant.plan)->check(rondo::existing_path());
  variant.schedule.add_to(app);
  try {
    app.parse(text);
  } catch (const CLI::ParseError& error) {
    throw UsageError(
        str("--variant '", text, "' is not STRATEGY [FLAGS], as \"zero3 --prefetch 4\": ", error.what()));
  }
  variant.strategy = all_strategies().resolve(variant.strategy);
  if (variant.strategy == "one_device")
    throw UsageError(str("--variant '", text, "': one_device takes part anyway"));
  if ((variant.strategy == "planned") == variant.plan.empty())
    throw UsageError(str("--variant '", text, "': planned takes --plan FILE, and other strategies do not"));
  variant.schedule.values();
  std::vector<std::string> words = variant.schedule.words();
  if (!variant.plan.empty())
    words.insert(words.begin(), std::filesystem::path(variant.plan).filename().string());
  variant.setting = join(words, " ");
  return variant;
}

}  // namespace rondo::bench
