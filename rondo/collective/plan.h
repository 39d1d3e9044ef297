#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/collective/request.h"

namespace rondo::collective {

// A collective algorithm as data: what each rank sends, receives and adds, and when. A plan is made without
// any communication (registry.h), printed (plan_table) and executed (executor.h).

// data is the caller's buffer, scratch what the executor lends for the time of the plan.
enum class Buffer : std::uint8_t { data, scratch };

// Bytes [offset, offset + bytes) of a buffer; always whole elements.
struct Range {
  Buffer buffer = Buffer::data;  // that it is a part of
  std::uint64_t offset = 0;      // in bytes, from the buffer's beginning
  std::uint64_t bytes = 0;       // length
  bool operator==(const Range&) const = default;
};

// One kind of step each.
enum class StepKind : std::uint8_t {
  send,         // range to peer
  recv,         // range from peer, replacing what is there
  recv_reduce,  // range = range + what peer sends
  reduce,       // range = sources[0] + sources[1] + ..., in this order, rounded once
  copy          // range = sources[0]
};

// One action of a rank in a round.
struct Step {
  StepKind kind = StepKind::send;  // the action
  int round = 0;                   // from 0
  int peer = -1;                   // of send, recv and recv_reduce
  Range range;                     // what is sent, or written
  std::vector<Range> sources;      // of reduce and copy; range itself may be one of them
};

// A step that no other rank takes part in.
inline bool is_local(const Step& step) {
  return step.kind == StepKind::reduce || step.kind == StepKind::copy;
}

// One rank's part of a collective.
//
// Rounds are numbered alike on all ranks: what one sends in round k the other receives in round k. Within a
// round all of a rank's sends and receives go on together and touch no byte twice, then its reduce and copy
// steps run in their order. Two messages of a pair of ranks in one round arrive in the order of the steps.
struct Plan {
  OperationKind operation = OperationKind::all_reduce;  // what all ranks' plans do together
  std::string algorithm;                                // the name of the algorithm that made it
  int rank = 0;                                         // whose part it is
  int world = 1;                                        // number of ranks
  int root = 0;                                         // of broadcast and reduce
  Bytes bytes;                                          // of the data buffer
  std::size_t element_bytes = 1;                        // size of an element
  Bytes scratch;                                        // of the scratch buffer
  int rounds = 0;                                       // number of rounds, the same on all ranks
  // Every reduce step combines all ranks' numbers, in the order of ranks, and nothing else adds.
  bool in_rank_order = false;
  std::vector<Step> steps;  // by round; within a round communication first
};

// What a plan is made for.
//
// Every operation works in place on one buffer of `bytes`, the same on all ranks. reduce_scatter and
// all_gather divide it into one part a rank (part_of): reduce_scatter leaves the sum of part r on rank r,
// all_gather takes part r from rank r. What a rank's buffer holds outside of its result afterwards is
// unspecified.
struct PlanRequest {
  OperationKind operation = OperationKind::all_reduce;  // one of planned_operations()
  int rank = 0;                                         // the rank whose plan is made
  int world = 1;                                        // number of ranks
  Bytes bytes{};                                        // a multiple of element_bytes; may be zero
  std::size_t element_bytes = 4;                        // pieces are never cut inside an element
  int root = 0;                                         // of broadcast and reduce
  // Pipelined algorithms cut the data in pieces of about this size.
  Bytes segment = KiB(256);
  // hierarchical: the host of every rank, any numbers in any order; empty: all on one.
  std::vector<int> hosts{};
  // torus_2d: rows * columns ranks, row by row; 0: as square as the world size allows.
  int rows = 0;
  // Sums are added in the order of ranks and rounded once, whatever the algorithm (algorithms/rank_order.h).
  bool in_rank_order = false;
};

// Whether one rank holds what everybody gets, or gets what everybody holds.
inline bool is_rooted(const PlanRequest& request) {
  return request.operation == OperationKind::broadcast || request.operation == OperationKind::reduce;
}

// Piece `index` of `pieces` of a range, in whole elements: the first (elements % pieces) have one more.
Range piece_of(const Range& whole, std::size_t element_bytes, int pieces, int index);
// The part of the data that belongs to a rank in reduce_scatter and all_gather.
Range part_of(const PlanRequest& request, int rank);

// What one rank's part of a collective costs.
struct Cost {
  int rounds = 0;                    // number of rounds
  std::uint64_t bytes_sent = 0;      // to other ranks
  std::uint64_t bytes_received = 0;  // from other ranks
  std::uint64_t scratch_bytes = 0;   // size of the scratch buffer
  bool operator==(const Cost&) const = default;
};

// Counted from the steps.
Cost count_cost(const Plan& plan);

// As plan_table writes it: "send".
const char* name(StepKind kind);
// As plan_table writes it: "data".
const char* name(Buffer buffer);

// Writes one rank's steps. Steps on empty ranges are left out: both sides of a message know its size, so both
// leave it out.
class PlanBuilder {
 public:
  // For request.rank. `algorithm`: the name that the plan gets.
  PlanBuilder(const PlanRequest& request, std::string algorithm);

  const PlanRequest& request() const { return request_; }  // as given
  int rank() const { return request_.rank; }               // whose plan it is
  int world() const { return request_.world; }             // number of ranks

  // All of the data.
  Range data() const { return {Buffer::data, 0, request_.bytes.count}; }
  // Piece `index` of `pieces` nearly equal ones of the data (piece_of).
  Range piece(int pieces, int index) const { return piece_of(data(), request_.element_bytes, pieces, index); }
  // Pieces [begin, end) of them.
  Range pieces(int pieces, int begin, int end) const;
  // Scratch memory that no other call returns.
  Range scratch(std::uint64_t bytes);

  void send(int round, int peer, const Range& range);                      // see StepKind::send
  void recv(int round, int peer, const Range& range);                      // see StepKind::recv
  void recv_reduce(int round, int peer, const Range& range);               // see StepKind::recv_reduce
  void reduce(int round, const Range& range, std::vector<Range> sources);  // see StepKind::reduce
  // The steps of another plan of this rank on the same data, its first round being `round`.
  void append(int round, const Plan& plan);

  // The plan, steps sorted by round; `rounds` may be more than have steps.
  Plan finish(int rounds);

 private:
  void add(Step step);
  PlanRequest request_;
  Plan plan_;
};

// "send to rank 2: data [0, 1024)".
std::string describe(const Step& step);

// The plans of all ranks as a table for people, round by round, a line a step.
std::string plan_table(const std::vector<Plan>& plans);

}  // namespace rondo::collective
