#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rondo/base/collective_call.h"
#include "rondo/collective/dtype.h"

namespace rondo {

// Collective operations, as MPI defines them.
enum class OperationKind : std::uint8_t {
  all_reduce,      // every rank gets the sum
  reduce_scatter,  // every rank gets a part of the sum
  all_gather,      // every rank gets the parts of all ranks
  broadcast,       // every rank gets the root's buffer
  reduce,          // the root gets the sum
  gather,          // the root gets all ranks' parts
  scatter,         // every rank gets a part of the root's data
  all_to_all,      // every rank gets a part from every rank
  barrier          // no data
};

// Returns the name for messages: "all_reduce".
const char* name(OperationKind kind);
// Returns whether it combines the ranks' values: all_reduce, reduce_scatter, reduce.
bool reduces(OperationKind kind);

// Location of an operation's pieces: `count` pieces with a distance of `stride` bytes from `base`, or a list
// with one pointer per piece. Pointers to inputs are only read.
struct Pieces {
  std::byte* base = nullptr;          // start of the first piece
  std::size_t stride = 0;             // in bytes
  std::vector<std::byte*> list = {};  // start of each piece; replaces `base` and `stride`

  // Returns the start of a piece.
  std::byte* at(std::size_t piece) const { return list.empty() ? base + piece * stride : list[piece]; }
  // Returns whether base and stride describe the pieces.
  bool contiguous() const { return list.empty(); }
};

// A rank's request for one collective. `elements` counts the elements of one piece:
//   all_reduce, broadcast, reduce   the whole buffer; `input` has one piece and `output` is the same buffer
//   all_gather, gather              the contribution of one rank; `output` has one piece per rank
//   reduce_scatter, scatter         the result of one rank; `input` has one piece per rank (scatter: at the
// root only)
//   all_to_all                      the data from one rank to another; both have one piece per rank
// The caller owns the buffers and keeps them until the operation has completed.
struct CollectiveRequest {
  OperationKind kind = OperationKind::barrier;  // the operation
  DType type = DType::uint8;                    // dtype of the elements
  Reduction reduction = Reduction::sum;         // reduction of the elements
  int root = 0;                                 // root of broadcast, reduce, gather and scatter
  std::uint64_t elements = 0;                   // number of elements of one piece
  Pieces input = {};                            // pieces to read
  Pieces output = {};                           // pieces to write
  // all_reduce with Reduction::average only: the result is sum(weight * buffer) / sum(weight) over the ranks.
  bool weighted = false;
  double weight = 1;  // this rank's weight
  // all_to_all only, in bytes, at most `elements` each: the sizes that this rank sends to and receives from
  // every rank if they differ. Empty means full pieces. `elements` must still be the same on all ranks.
  std::vector<std::uint64_t> input_bytes = {};
  std::vector<std::uint64_t> output_bytes = {};  // received sizes
  // all_to_all of bytes with the two lists above: `elements` is this rank's largest piece. The ranks first
  // exchange their sizes through the engine, without waiting; that is a collective with a sequence number of
  // its own.
  bool exchanges_sizes = false;
  // A schedule moves the data, not the engine: the ranks only announce the call and compare.
  bool by_schedule = false;
  // The call of the library that contains the operation. Ranks with different calls disagree.
  CollectiveCall call = current_collective_call();

  // Size of one piece in bytes.
  std::uint64_t bytes() const { return elements * element_bytes(type); }
};

// Describes the request: "all_reduce(1000 x float32, SUM)", "broadcast(12 x int64, root 1)".
std::string describe(const CollectiveRequest& request);
// Returns "is in Trainer::save and called all_reduce(1000 x float32, SUM)", for messages after a rank's
// name; `described` is the operation.
std::string describe_call(CollectiveCall call, const std::string& described);
// Returns " in Trainer::save", for messages after an operation; empty for an operation outside of a call.
std::string in_call(CollectiveCall call);

}  // namespace rondo
