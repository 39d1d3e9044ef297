#include "rondo/backend/context.h"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <numeric>
#include <set>

#include "rondo/backend/native/native_backend.h"
#include "rondo/backend/registry.h"
#include "rondo/backend/rendezvous.h"
#include "rondo/backend/store_adapter.h"
#include "rondo/base/error.h"
#include "rondo/base/log.h"
#include "rondo/base/text.h"
#include "rondo/env/identity.h"

namespace rondo {

struct Context::State {
  env::Identity identity;
  int local_rank = 0;
  int local_world_size = 1;
  std::string backend_name;
  c10::intrusive_ptr<c10d::Store> store;
  Duration timeout{};
  Group world;
  std::vector<Group> groups;  // all made so far; a group is named by its number
};

namespace {

// Which ranks share a host, found by comparing host names where no launcher told.
void find_local_ranks(env::Identity& identity, int& local_rank, int& local_world_size,
                      const c10::intrusive_ptr<c10d::Store>& store, Duration timeout) {
  if (identity.world_size == 1) {
    local_rank = identity.local_rank.value_or(0);
    local_world_size = identity.local_world_size.value_or(1);
    return;
  }
  if (identity.local_rank && identity.local_world_size) {
    local_rank = *identity.local_rank;
    local_world_size = *identity.local_world_size;
    return;
  }
  StoreFromC10d view(store);
  view.set(str("host/", identity.rank), identity.host);
  const Wait wait{Deadline::after(timeout), nullptr};
  int before = 0;
  int same = 0;
  for (int r = 0; r < identity.world_size; ++r) {
    std::string host;
    try {
      host = view.get(str("host/", r), wait);
    } catch (const TimeoutError&) {
      std::vector<int> missing;
      for (int other = r; other < identity.world_size; ++other) {
        if (!view.try_get(str("host/", other))) missing.push_back(other);
      }
      throw TimeoutError(str("rank ", identity.rank, " of ", identity.world_size, " waited ",
                             to_string(timeout), " for all ranks to join; missing: ", join(missing, ", "),
                             ". Were all ranks started, with the same world size?"),
                         missing);
    }
    if (host != identity.host) continue;
    ++same;
    if (r < identity.rank) ++before;
  }
  local_rank = identity.local_rank.value_or(before);
  local_world_size = identity.local_world_size.value_or(same);
}

env::Overrides overrides_of(const InitOptions& options) {
  env::Overrides overrides;
  overrides.rank = options.rank;
  overrides.world_size = options.world_size;
  overrides.local_rank = options.local_rank;
  overrides.init_method = options.store ? "file:///unused" : options.init_method;
  return overrides;
}

}  // namespace

Context init(const InitOptions& options) {
  if (options.store && (!options.rank || !options.world_size)) {
    throw UsageError(
        "InitOptions.store is given, so InitOptions.rank and InitOptions.world_size must be too");
  }
  auto state = std::make_shared<Context::State>();
  state->identity = env::discover_process(overrides_of(options));
  state->timeout = options.timeout;
  const env::Identity& identity = state->identity;
  if (identity.world_size > 1) log::set_prefix(str("rank ", identity.rank));
  state->store = options.store ? options.store : meet(identity, options.init_method, options.timeout);
  // A restarted job may meet in a store that remembers the last attempt.
  if (identity.restart_count > 0) {
    state->store =
        c10::make_intrusive<c10d::PrefixStore>(str("attempt/", identity.restart_count), state->store);
  }
  find_local_ranks(state->identity, state->local_rank, state->local_world_size, state->store,
                   options.timeout);
  const bool one_host = state->local_world_size == identity.world_size;
  state->backend_name = options.backend == "auto" ? (one_host ? "native" : "gloo") : options.backend;

  std::vector<int> everyone(static_cast<std::size_t>(identity.world_size));
  std::iota(everyone.begin(), everyone.end(), 0);
  Context context(state);
  state->world = context.new_group(everyone);
  return context;
}

namespace {

template <class State>
State& checked(const std::shared_ptr<State>& state) {
  if (state == nullptr) throw UsageError("this Context is empty; it comes from rondo::init()");
  return *state;
}

}  // namespace

int Context::rank() const { return checked(state_).identity.rank; }
int Context::world_size() const { return checked(state_).identity.world_size; }
int Context::local_rank() const { return checked(state_).local_rank; }
int Context::local_world_size() const { return checked(state_).local_world_size; }
const std::string& Context::host() const { return checked(state_).identity.host; }
const std::string& Context::backend_name() const { return checked(state_).backend_name; }
const Group& Context::world() const { return checked(state_).world; }

Group Context::new_group(const std::vector<int>& ranks) const {
  State& state = checked(state_);
  if (ranks.empty()) throw UsageError("new_group: the list of ranks is empty");
  for (const int rank : ranks) {
    if (rank < 0 || rank >= world_size()) {
      throw UsageError(str("new_group: ", rank, " is not a rank of this world of ", world_size()));
    }
  }
  if (std::set<int>(ranks.begin(), ranks.end()).size() != ranks.size()) {
    throw UsageError(str("new_group: a rank appears twice in {", join(ranks, ", "), "}"));
  }
  const std::string name = state.groups.empty() ? "world" : str("group ", state.groups.size());
  const auto store = c10::make_intrusive<c10d::PrefixStore>(name, state.store);
  const auto found = std::find(ranks.begin(), ranks.end(), rank());
  if (found == ranks.end()) {
    state.groups.emplace_back(name, ranks, -1, nullptr, store);
    return state.groups.back();
  }
  BackendRequest request;
  request.group_name = name;
  request.rank = static_cast<int>(found - ranks.begin());
  request.size = static_cast<int>(ranks.size());
  request.world_ranks = ranks;
  request.store = store;
  request.timeout = state.timeout;
  state.groups.emplace_back(name, ranks, request.rank, make_backend(state.backend_name, request), store);
  return state.groups.back();
}

void Context::shutdown() {
  State& state = checked(state_);
  if (state.groups.empty()) return;
  state.world.backend()->barrier()->wait();
  for (const Group& group : state.groups) {
    if (!group.member()) continue;
    if (auto* native = dynamic_cast<NativeBackend*>(group.backend().get())) native->close();
  }
  state.groups.clear();
  state.world = Group();
}

}  // namespace rondo
