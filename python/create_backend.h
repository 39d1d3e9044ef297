#pragma once

#include <chrono>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

namespace rondo::plugin {

// Creates this rank's communicator of a group: the native engine if all members can share memory, otherwise
// hierarchical(native, gloo). Members publish their hosts in the store. Collective over `store`, which must
// be private to the group. Blocks; throws TimeoutError naming the members that did not arrive.
c10::intrusive_ptr<c10d::Backend> create_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                 int size, const std::vector<int>& world_ranks,
                                                 const std::string& group_name,
                                                 std::chrono::milliseconds timeout);

// Closes the groups whose engine has threads of its own: waits up to 5 s for operations in flight, after
// which no callback of a future runs any more.
void close_groups();

}  // namespace rondo::plugin
