#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "rondo/base/time.h"

namespace rondo {

// What a backend factory is given to build one communicator.
struct BackendRequest {
  std::string group_name;
  int rank = 0;
  int size = 1;
  std::vector<int> world_ranks;           // world rank of each member
  c10::intrusive_ptr<c10d::Store> store;  // private to the group
  Duration timeout = std::chrono::minutes(5);
  // Of each member, equal for those that can share memory; empty: all run on one host.
  std::vector<std::string> hosts = {};
  std::vector<std::string> host_names = {};  // of each member, for messages
  // A store that only this host's members share, private to the group; null: they meet in `store` too.
  c10::intrusive_ptr<c10d::Store> host_store = {};
  // Address of this host that the others reach it by; empty: not known.
  std::string local_address = {};
  // What stood in brackets behind the name: "hierarchical(native, gloo)" gives native and gloo.
  std::vector<std::string> arguments = {};
  // Sums are added in the order of ranks, see InitOptions::reproducible. make_backend sees to it for engines
  // that know no such thing.
  bool reproducible = false;

  bool one_host() const {
    return hosts.empty() ||
           std::all_of(hosts.begin(), hosts.end(), [&](const auto& h) { return h == hosts.front(); });
  }
};
using BackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const BackendRequest&)>;

// Names an engine for InitOptions::backend and `--backend`; a name already taken is replaced. Any thread.
void register_backend(const std::string& name, BackendFactory factory);

// Makes a communicator. `name` is that of an engine, with arguments in brackets where it takes some
// ("hierarchical(native, gloo)"), or a module's (see module.h); throws UsageError listing the known names
// when there is no such engine, or saying how to get one that was left out of this build.
c10::intrusive_ptr<c10d::Backend> make_backend(const std::string& name, const BackendRequest& request);

// Names that make_backend accepts, sorted.
std::vector<std::string> backend_names();

}  // namespace rondo
