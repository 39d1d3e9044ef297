#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "rondo/backend/engine/request.h"

namespace rondo {

// Returns the request for one of several engines that serve the group of `request` together: its keys in the
// group's stores begin with `part`.
inline BackendRequest part_of(const BackendRequest& request, const std::string& part) {
  BackendRequest own = request;
  own.store = c10::make_intrusive<c10d::PrefixStore>(part, request.store);
  if (request.host_store) own.host_store = c10::make_intrusive<c10d::PrefixStore>(part, request.host_store);
  return own;
}

}  // namespace rondo
