#include "rondo/strategy/replica_context.h"

#include <utility>

namespace rondo {
namespace {

thread_local const ReplicaContext* current_replica_context = nullptr;

}  // namespace

ReplicaContext::ReplicaContext(Strategy& strategy, int replica, AllReduce all_reduce)
    : strategy_(strategy),
      replica_(replica),
      all_reduce_(std::move(all_reduce)),
      outer_(std::exchange(current_replica_context, this)) {}

ReplicaContext::~ReplicaContext() { current_replica_context = outer_; }

const ReplicaContext* ReplicaContext::current() { return current_replica_context; }

}  // namespace rondo
