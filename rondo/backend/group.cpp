#include "rondo/backend/group.h"

#include "rondo/base/error.h"

namespace rondo {

struct Group::State {
  std::string name;
  std::vector<int> ranks;
  int rank;
  Communicator communicator;
  c10::intrusive_ptr<c10d::Store> store;
  // As a look at the engine's type takes a small all_reduce a tenth of its time.
  ExtendedBackend* engine = rondo::extended(communicator.backend);
};

Group::Group(std::string name, std::vector<int> ranks, int rank, Communicator communicator,
             c10::intrusive_ptr<c10d::Store> store)
    : state_(std::make_shared<State>(
          State{std::move(name), std::move(ranks), rank, std::move(communicator), std::move(store)})) {}

// NOLINTNEXTLINE(performance-unnecessary-value-param): it is looked at after it has been copied
Group::Group(std::string name, std::vector<int> ranks, int rank, c10::intrusive_ptr<c10d::Backend> backend,
             c10::intrusive_ptr<c10d::Store> store)
    : Group(std::move(name), std::move(ranks), rank, Communicator{backend, traits_of(backend)},
            std::move(store)) {}

namespace {

template <class State>
const State& checked(const std::shared_ptr<const State>& state) {
  if (state == nullptr)
    throw UsageError("this group handle is empty: it came from no Context, or from one shut down");
  return *state;
}

template <class State>
const Communicator& communicator_of(const std::shared_ptr<const State>& state) {
  if (!checked(state).communicator.backend)
    throw UsageError("this rank is not a member of group '" + state->name + "'");
  return state->communicator;
}

}  // namespace

int Group::rank() const { return state_ == nullptr ? -1 : state_->rank; }
int Group::size() const { return static_cast<int>(checked(state_).ranks.size()); }
const std::vector<int>& Group::ranks() const { return checked(state_).ranks; }
const std::string& Group::name() const { return checked(state_).name; }

const c10::intrusive_ptr<c10d::Backend>& Group::backend() const { return communicator_of(state_).backend; }
ExtendedBackend* Group::extended() const { return checked(state_).engine; }
const EngineTraits& Group::traits() const { return communicator_of(state_).traits; }

const c10::intrusive_ptr<c10d::Store>& Group::store() const { return checked(state_).store; }

}  // namespace rondo
