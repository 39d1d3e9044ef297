#pragma once

#include <memory>

#include "rondo/backend/hierarchical/transports.h"

namespace rondo::hierarchical {

// The collectives that move data without all_reduce's exchange. Requests are those of the shared-memory
// engine (collective/shared_memory/request.h) with group ranks for ranks: `root` is a group rank, and pieces
// are numbered by group rank.

// From the root to one rank of every other host, from host to host in a chain so that no host sends the
// buffer twice, and within each host from there.
std::unique_ptr<Operation> broadcast(const CollectiveRequest& request, const HostMap& map);

// Within every host to one rank, from there to the root, which adds in host order. Only the root's buffer
// changes.
std::unique_ptr<Operation> reduce(const CollectiveRequest& request, const HostMap& map);

// Every rank's piece goes once to each other host, and is handed out there.
std::unique_ptr<Operation> all_gather(const CollectiveRequest& request, const HostMap& map);

// For each rank's piece, every host adds up its own part and sends it there; the rank adds in host order.
std::unique_ptr<Operation> reduce_scatter(const CollectiveRequest& request, const HostMap& map);

// gather, scatter and all_to_all: a message from each rank that has something to each that wants it, whatever
// the hosts, behind its size. A rank that expects another size gets MismatchError. all_to_all's request must
// have the bytes of each piece.
std::unique_ptr<Operation> exchange(const CollectiveRequest& request, const HostMap& map);

}  // namespace rondo::hierarchical
