#include "tests/sim/counts.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "tests/sim/launch.h"
#include "tests/sim/streams.h"

namespace rondo::sim {
namespace {

struct Record {
  std::mutex mutex;  // protects the members below
  Counts counts;
  std::map<std::string, std::int64_t> launches;  // by operator
};

// Never destroyed: other threads of the process may still launch while it ends.
Record& record() {
  static auto* const instance = new Record;
  return *instance;
}

// Writes FOLDER/rank-N.json when the process ends, if RONDO_SIM_COUNTS=FOLDER is set.
class Report {
 public:
  Report() { record(); }
  ~Report() {
    const char* const folder = std::getenv("RONDO_SIM_COUNTS");
    if (folder == nullptr) return;
    const char* const rank = std::getenv("RANK");
    const std::string path = std::string(folder) + "/rank-" + (rank != nullptr ? rank : "0") + ".json";
    FILE* const file = std::fopen(path.c_str(), "w");
    if (file == nullptr) return;
    const std::lock_guard lock(record().mutex);
    const Counts& counts = record().counts;
    std::fprintf(file,
                 "{\"host_to_device\": %lld, \"device_to_host\": %lld, \"device_to_device\": %lld, "
                 "\"synchronisations\": "
                 "%lld, \"launches\": %lld, \"operators\": {",
                 static_cast<long long>(counts.host_to_device), static_cast<long long>(counts.device_to_host),
                 static_cast<long long>(counts.device_to_device),
                 static_cast<long long>(counts.synchronisations), static_cast<long long>(counts.launches));
    const char* before = "";
    for (const auto& [name, number] : record().launches) {
      std::fprintf(file, "%s\"%s\": %lld", before, name.c_str(), static_cast<long long>(number));
      before = ", ";
    }
    std::fprintf(file, "}}\n");
    std::fclose(file);
  }
};

const Report report;

}  // namespace

void on_launch(const Launch& launch) {
  finish(launch.stream);
  const std::lock_guard lock(record().mutex);
  ++record().counts.launches;
  ++record().launches[launch.operation];
}

void on_copy(Copy kind, const Launch& launch, bool blocks) {
  finish(launch.stream);
  const std::lock_guard lock(record().mutex);
  Counts& counts = record().counts;
  ++(kind == Copy::host_to_device   ? counts.host_to_device
     : kind == Copy::device_to_host ? counts.device_to_host
                                    : counts.device_to_device);
  ++record().launches[launch.operation];
  if (blocks) ++counts.synchronisations;
}

void on_synchronise() {
  const std::lock_guard lock(record().mutex);
  ++record().counts.synchronisations;
}

}  // namespace rondo::sim

extern "C" void rondo_sim_read_counts(rondo::sim::Counts* counts) {
  const std::lock_guard lock(rondo::sim::record().mutex);
  *counts = rondo::sim::record().counts;
}
