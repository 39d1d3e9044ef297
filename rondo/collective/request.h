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
  all_gather,      // every rank gets all ranks' parts
  broadcast,       // every rank gets what the root has
  reduce,          // the root gets the sum
  gather,          // the root gets all ranks' parts
  scatter,         // every rank gets a part of what the root has
  all_to_all,      // every rank gets a part of every rank
  barrier          // nothing travels
};

// As messages have it: "all_reduce".
const char* name(OperationKind kind);
// Whether it combines the ranks' numbers: all_reduce, reduce_scatter, reduce.
bool reduces(OperationKind kind);

// Where an operation's pieces lie: `count` of them `stride` bytes apart from `base`, or anywhere, one pointer
// each. What is read only is not written through these pointers.
struct Pieces {
  std::byte* base = nullptr;          // of the first piece
  std::size_t stride = 0;             // in bytes
  std::vector<std::byte*> list = {};  // instead of the two above: where each piece begins

  // Returns the beginning of a piece.
  std::byte* at(std::size_t piece) const { return list.empty() ? base + piece * stride : list[piece]; }
  // Whether base and stride say where they are.
  bool contiguous() const { return list.empty(); }
};

// One collective as a rank asks for it. `elements` counts the elements of one piece:
//   all_reduce, broadcast, reduce   the whole buffer; `input` has one piece and `output` is the same buffer
//   all_gather, gather              what one rank contributes; `output` has one piece a rank
//   reduce_scatter, scatter         what one rank receives; `input` has one piece a rank (scatter: at the
//   root only) all_to_all                      what goes from one rank to another; both have one piece a rank
// Buffers belong to the caller and must stay until the operation has completed.
struct CollectiveRequest {
  OperationKind kind = OperationKind::barrier;  // the operation
  DType type = DType::uint8;                    // of the elements
  Reduction reduction = Reduction::sum;         // where numbers are combined
  int root = 0;                                 // of broadcast, reduce, gather and scatter
  std::uint64_t elements = 0;                   // of one piece
  Pieces input = {};                            // what is read
  Pieces output = {};                           // what is written
  // all_reduce with Reduction::average only: the result is sum(weight * buffer) / sum(weight) over the ranks.
  bool weighted = false;
  double weight = 1;  // this rank's
  // all_to_all only, in bytes and at most `elements` each: what this rank sends to and receives from every
  // rank when that differs. Empty means full pieces. `elements` must be the same on all ranks even so.
  std::vector<std::uint64_t> input_bytes = {};
  std::vector<std::uint64_t> output_bytes = {};  // likewise
  // all_to_all of bytes with the two lists above: `elements` is this rank's largest piece. The engine has the
  // ranks tell each other their sizes first, without waiting; that is a collective with a sequence number of
  // its own.
  bool exchanges_sizes = false;
  // The engine moves no data, a plan does: the ranks only say that they make this call, and compare.
  bool by_plan = false;
  // The call that the operation belongs to. Ranks that name different ones disagree.
  CollectiveCall call = current_collective_call();

  // Size of one piece.
  std::uint64_t bytes() const { return elements * element_bytes(type); }
};

// "all_reduce(1000 x float32, SUM)", "broadcast(12 x int64, root 1)".
std::string describe(const CollectiveRequest& request);
// "is in Trainer::save and called all_reduce(1000 x float32, SUM)", for messages behind a rank's name;
// `described` is the operation.
std::string describe_call(CollectiveCall call, const std::string& described);
// " in Trainer::save", for messages behind an operation; empty for an operation of no call.
std::string in_call(CollectiveCall call);

}  // namespace rondo
