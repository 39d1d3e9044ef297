#include "rondo/train/epoch_parts.h"

#include <algorithm>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

using Done = TrainingSampler::Done;
using nlohmann::json;

// Division by sample reads a prefix of the epoch for any number of readers, so one number describes it. Parts
// read after a part that was divided by file are in a list.
constexpr const char* kBeginning = "done_before";
constexpr const char* kParts = "parts_before";
constexpr std::int64_t kMost = std::int64_t{1} << 53;

bool is_count(const json& value, std::int64_t most) {
  return value.is_number_integer() && value.get<std::int64_t>() >= 0 && value.get<std::int64_t>() <= most;
}

bool is_part(const json& part) {
  return part.is_object() && part.size() == 3 && part.contains("by") && part["by"].is_string() &&
         (part["by"] == "file" || part["by"] == "sample") &&
         is_count(part.value("readers", json()), 1 << 20) && part["readers"] != 0 &&
         is_count(part.value("samples", json()), kMost >> 20);
}

}  // namespace

std::vector<Done> parts_done(const json& sampling, const std::string& what) {
  std::vector<Done> done;
  if (const std::int64_t beginning = sampling.value(kBeginning, std::int64_t{0}); beginning > 0)
    done.push_back({.samples = beginning});
  const json parts = sampling.value(kParts, json::array());
  for (const json& part : parts) {
    if (!is_part(part)) {
      throw DataError(str(what, ": \"", kParts, "\" has ", part.dump().substr(0, 80),
                          ", expected \"by\" file or sample, \"readers\" and \"samples\" of each"));
    }
    done.push_back({.readers = part["readers"].get<int>(),
                    .samples = part["samples"].get<std::int64_t>(),
                    .by_file = part["by"] == "file"});
  }
  return done;
}

void close_part(json& sampling, TrainingPosition& position) {
  const std::int64_t readers = sampling.value("readers_by_file", std::int64_t{0});
  const std::int64_t samples = position.batch * sampling.at("global_batch").get<std::int64_t>();
  position.batch = 0;
  if (samples == 0) return;
  if (readers == 0 && !sampling.contains(kParts)) {
    const std::int64_t done = sampling.value(kBeginning, std::int64_t{0}) + samples;
    sampling[kBeginning] = std::min(done, sampling.at("samples").get<std::int64_t>());
    return;
  }
  const char* const by = readers > 0 ? "file" : "sample";
  const std::int64_t among = readers > 0 ? readers : 1;
  json& parts = sampling[kParts];
  if (!parts.empty() && parts.back()["by"] == by && parts.back()["readers"] == among) {
    parts.back()["samples"] = parts.back()["samples"].get<std::int64_t>() + samples / among;
  } else {
    parts.push_back({{"by", by}, {"readers", among}, {"samples", samples / among}});
  }
}

void clear_parts(json& sampling) {
  sampling.erase(kBeginning);
  sampling.erase(kParts);
}

void copy_parts(const json& from, json& to) {
  for (const char* key : {kBeginning, kParts}) {
    if (from.contains(key)) to[key] = from[key];
  }
}

}  // namespace rondo
