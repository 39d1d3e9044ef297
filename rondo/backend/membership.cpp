#include "rondo/backend/membership.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <nlohmann/json.hpp>

#include "rondo/backend/engine/store_adapter.h"
#include "rondo/base/error.h"
#include "rondo/base/json_strict.h"
#include "rondo/base/text.h"
#include "rondo/channel/shared_store.h"
#include "rondo/env/environment.h"

namespace rondo {
namespace {

std::string key_of(int rank) { return str("host/", rank); }

std::string link_target(const char* path) {
  std::array<char, 64> target{};
  return readlink(path, target.data(), target.size() - 1) > 0 ? target.data() : "";
}

std::string launcher_store_identity() {
  const auto descriptor = env::lookup(env::process_environment(), kStoreDescriptorVariable);
  struct stat status {};
  if (!descriptor ||
      fstat(static_cast<int>(parse_integer(*descriptor, kStoreDescriptorVariable)), &status) != 0)
    return {};
  return str(status.st_dev, ":", status.st_ino);
}

[[noreturn]] void throw_missing(const env::Identity& identity, StoreFromC10d& store, Duration timeout) {
  std::vector<int> missing;
  for (int rank = 0; rank < identity.world_size; ++rank) {
    if (!store.try_get(key_of(rank))) missing.push_back(rank);
  }
  throw TimeoutError(str("rank ", identity.rank, " of ", identity.world_size, " waited ", to_string(timeout),
                         " for all ranks to join; missing: ", join(missing, ", "),
                         ". Were all ranks started, with the same world size?"),
                     missing);
}

}  // namespace

std::string host_identity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  return str(boot, " ", link_target("/proc/self/ns/pid"), " ", link_target("/proc/self/ns/net"));
}

Member this_member(const env::Identity& identity, const std::string& host) {
  return {host.empty() ? host_identity() : host, identity.host, launcher_store_identity()};
}

std::vector<Member> exchange_members(const env::Identity& identity, const Member& own,
                                     const c10::intrusive_ptr<c10d::Store>& store, Duration timeout) {
  StoreFromC10d view(store);
  const nlohmann::json announced = {{"host", own.host},
                                    {"host_name", own.host_name},
                                    {"launcher_store", own.launcher_store},
                                    {"world_size", identity.world_size},
                                    {"pid", getpid()}};
  const std::string text = announced.dump();
  const std::string present = view.compare_set(key_of(identity.rank), "", text);
  if (!present.empty() && present != text) {
    const std::string source = "what another process said of this rank";
    const nlohmann::json other = parse_json_strict(present, source);
    throw UsageError(str(
        "rank ", identity.rank, " is claimed by two processes: pid ", getpid(), " on host ", own.host_name,
        " and pid ", json_integer(json_member(other, "pid", source), json_place(source, "pid")), " on host ",
        json_text(json_member(other, "host_name", source), json_place(source, "host_name")),
        ". Was the same --node-rank given on two hosts, or is another job using the address?"));
  }
  const Wait wait{Deadline::after(timeout), nullptr};
  std::vector<Member> members;
  for (int rank = 0; rank < identity.world_size; ++rank) {
    nlohmann::json found;
    const std::string source = str("what rank ", rank, " said of itself");
    const auto text = [&](const char* key) {
      return json_text(json_member(found, key, source), json_place(source, key));
    };
    try {
      found = parse_json_strict(view.get(key_of(rank), wait), source);
    } catch (const TimeoutError&) {
      throw_missing(identity, view, timeout);
    }
    const std::int64_t world_size =
        json_integer(json_member(found, "world_size", source), json_place(source, "world_size"));
    if (world_size != identity.world_size) {
      throw UsageError(str("rank ", identity.rank, " on host ", own.host_name, " counts ",
                           identity.world_size, " ranks, but rank ", rank, " on host ", text("host_name"),
                           " counts ", world_size,
                           ". Give every host the same --nnodes, and the same --nproc-per-node."));
    }
    members.push_back({text("host"), text("host_name"), text("launcher_store")});
  }
  return members;
}

}  // namespace rondo
