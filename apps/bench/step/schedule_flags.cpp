#include "apps/bench/step/schedule_flags.h"

#include <charconv>
#include <filesystem>

#include "apps/common/flag_checks.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/schedule/policy.h"

namespace rondo::bench {
namespace {

void check_policy(const std::string&, const char*) {
}  // not checked here: the parser of --comm-schedule checks the value

void check_size(const std::string& text, const char* flag) { parse_bytes(text, flag); }

void check_units(const std::string& text, const char* flag) {
  int value = -1;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value).ptr;
  if (end != text.data() + text.size() || value < 0)
    throw UsageError(str(flag, " ", text, " is not a number of units, 0 or more"));
}

struct ScheduleFlag {
  const char* flag;
  const char* option;  // name of the strategies' option
  void (*check)(const std::string& text, const char* flag);
  const char* help;
};
// Indexed by ScheduleFlags::Field.
constexpr ScheduleFlag kScheduleFlags[] = {
    {"--comm-schedule", "comm-schedule", check_policy, "scheduler: order in which segments are sent"},
    {"--segment-size", "segment-size", check_size,
     "scheduler: size of a segment, such as 4MiB; 0: whole units"},
    {"--in-flight-bytes", "in-flight-bytes", check_size, "scheduler: maximum bytes in flight; 0: unlimited"},
    {"--prefetch", "prefetch", check_units, "scheduler: units to gather ahead; 0: none"},
    {"--gradients-in-flight", "gradients-in-flight", check_units,
     "scheduler: units whose gradients are in flight; 0: unlimited"},
    {"--fuse-bytes", "fuse-bytes", check_size, "scheduler: fuse units up to this total size; 0: none"}};

}  // namespace

void ScheduleFlags::add_to(CLI::App& app) {
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    CLI::Option* option = app.add_option(kScheduleFlags[i].flag, texts_[i], kScheduleFlags[i].help);
    if (i == schedule) option->check(CLI::IsMember(policy_names()));
  }
}

OptionValues ScheduleFlags::values() const {
  OptionValues values;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (texts_[i].empty()) continue;
    kScheduleFlags[i].check(texts_[i], kScheduleFlags[i].flag);
    values[kScheduleFlags[i].option] = texts_[i];
  }
  return values;
}

std::vector<std::string> ScheduleFlags::words() const {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < texts_.size(); ++i) {
    if (!texts_[i].empty()) words.insert(words.end(), {kScheduleFlags[i].flag, texts_[i]});
  }
  return words;
}

std::vector<SchedulePolicy> schedule_ablation(ScheduleFlags flags) {
  ScheduleFlags now;
  now[ScheduleFlags::schedule] = "fifo";
  for (const auto field : {ScheduleFlags::segment_bytes, ScheduleFlags::in_flight_bytes,
                           ScheduleFlags::prefetch, ScheduleFlags::fuse_bytes})
    now[field] = "0";
  std::vector<SchedulePolicy> policies = {{"fifo", now}};
  const auto switch_on = [&](const char* name, ScheduleFlags::Field field, const char* otherwise) {
    now[field] = flags[field].empty() ? otherwise : flags[field];
    policies.push_back({name, now});
  };
  switch_on("+priority", ScheduleFlags::schedule, "priority");
  // ByteScheduler's segment size, and enough bytes in flight to keep a link busy.
  switch_on("+partitioning", ScheduleFlags::segment_bytes, "4MiB");
  switch_on("+in_flight_limit", ScheduleFlags::in_flight_bytes, "16MiB");
  switch_on("+prefetch", ScheduleFlags::prefetch, "2");
  switch_on("+fusion", ScheduleFlags::fuse_bytes, "4MiB");
  return policies;
}

Variant parse_variant(const std::string& text) {
  Variant variant;
  CLI::App app;
  app.add_option("strategy", variant.strategy)->required();
  app.add_option("--plan", variant.plan)->check(existing_path());
  variant.schedule.add_to(app);
  try {
    app.parse(text);
  } catch (const CLI::ParseError& error) {
    throw UsageError(
        str("--variant '", text, "' is not STRATEGY [FLAGS], as \"zero3 --prefetch 4\": ", error.what()));
  }
  variant.strategy = all_strategies().resolve(variant.strategy);
  if (variant.strategy == "one_device")
    throw UsageError(str("--variant '", text, "': one_device is always measured; leave it out"));
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
