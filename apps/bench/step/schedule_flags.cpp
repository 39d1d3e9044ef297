#include "apps/bench/step/schedule_flags.h"

#include <CLI/CLI.hpp>
#include <charconv>

#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/schedule/communication_options.h"
#include "rondo/parallel/schedule/policy.h"

namespace rondo::bench {
namespace {

int parse_units(const std::string& text, const char* flag) {
  int value = -1;
  const auto end = std::from_chars(text.data(), text.data() + text.size(), value).ptr;
  if (end != text.data() + text.size() || value < 0)
    throw UsageError(str(flag, " ", text, " is not a number of units, 0 or more"));
  return value;
}

std::string given_or(const std::string& given, const char* otherwise) {
  return given.empty() ? otherwise : given;
}

}  // namespace

void ScheduleFlags::add_to(CLI::App& app) {
  app.add_option("--comm-schedule", schedule, "scheduler: which block is sent first")
      ->check(CLI::IsMember(policy_names()));
  app.add_option("--block-size", block_bytes, "scheduler: size of a block, such as 4MiB; 0 is whole units");
  app.add_option("--in-flight-bytes", in_flight_bytes,
                 "scheduler: bytes under way at a time; 0 is unlimited");
  app.add_option("--prefetch", prefetch, "scheduler: units gathered ahead; 0 is none");
  app.add_option("--gradients-in-flight", gradients_in_flight,
                 "scheduler: units whose gradients travel at a time; 0 is unlimited");
  app.add_option("--fuse-bytes", fuse_bytes, "scheduler: units together no larger travel as one; 0 is none");
}

OptionValues ScheduleFlags::values() const {
  OptionValues values;
  const auto add = [&](const char* option, const std::string& value, const auto& check, const char* flag) {
    if (value.empty()) return;
    check(value, flag);
    values[option] = value;
  };
  add(
      "comm-schedule", schedule, [](const auto&...) {}, "--comm-schedule");
  add("block-size", block_bytes, parse_bytes, "--block-size");
  add("in-flight-bytes", in_flight_bytes, parse_bytes, "--in-flight-bytes");
  add("prefetch", prefetch, parse_units, "--prefetch");
  add("gradients-in-flight", gradients_in_flight, parse_units, "--gradients-in-flight");
  add("fuse-bytes", fuse_bytes, parse_bytes, "--fuse-bytes");
  return values;
}

std::vector<std::string> ScheduleFlags::words() const {
  std::vector<std::string> words;
  const auto add = [&](const char* flag, const std::string& value) {
    if (!value.empty()) words.insert(words.end(), {flag, value});
  };
  add("--comm-schedule", schedule);
  add("--block-size", block_bytes);
  add("--in-flight-bytes", in_flight_bytes);
  add("--prefetch", prefetch);
  add("--gradients-in-flight", gradients_in_flight);
  add("--fuse-bytes", fuse_bytes);
  return words;
}

std::vector<SchedulePolicy> schedule_ablation(const ScheduleFlags& flags) {
  ScheduleFlags now{
      .schedule = "fifo", .block_bytes = "0", .in_flight_bytes = "0", .prefetch = "0", .fuse_bytes = "0"};
  std::vector<SchedulePolicy> policies = {{"fifo", now}};
  now.schedule = given_or(flags.schedule, "priority");
  policies.push_back({"+priority", now});
  // ByteScheduler's block, and enough of them under way to keep a link busy.
  now.block_bytes = given_or(flags.block_bytes, "4MiB");
  policies.push_back({"+partitioning", now});
  now.in_flight_bytes = given_or(flags.in_flight_bytes, "16MiB");
  policies.push_back({"+in_flight_limit", now});
  now.prefetch = given_or(flags.prefetch, "2");
  policies.push_back({"+prefetch", now});
  now.fuse_bytes = given_or(flags.fuse_bytes, "4MiB");
  policies.push_back({"+fusion", now});
  return policies;
}

}  // namespace rondo::bench
