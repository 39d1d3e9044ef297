#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/collective/request.h"

namespace rondo::collective {

// A collective algorithm as data: the sends, receives and additions of each rank, by round. A schedule is
// made without any communication (registry.h), printed (schedule_table) and executed (executor.h).

// `data` is the caller's buffer; the executor provides `scratch` during a run.
enum class Buffer : std::uint8_t { data, scratch };

// Bytes [offset, offset + bytes) of a buffer; always whole elements.
struct Range {
  Buffer buffer = Buffer::data;                   // buffer that contains the range
  std::uint64_t offset = 0;                       // in bytes, from the start of the buffer
  std::uint64_t bytes = 0;                        // length
  bool operator==(const Range&) const = default;  // by fields
};

// The kinds of steps.
enum class StepKind : std::uint8_t {
  send,         // sends range to peer
  recv,         // receives range from peer, replacing its contents
  recv_reduce,  // range = range + message of peer
  reduce,       // range = sources[0] + sources[1] + ..., in this order, rounded once
  copy          // range = sources[0]
};

// An action of a rank in a round.
struct Step {
  StepKind kind = StepKind::send;  // the action
  int round = 0;                   // from 0
  int peer = -1;                   // peer of send, recv and recv_reduce
  Range range;                     // bytes to send or to write
  std::vector<Range> sources;      // sources of reduce and copy; may contain range
};

// Returns whether the step involves no other rank.
inline bool is_local(const Step& step) {
  return step.kind == StepKind::reduce || step.kind == StepKind::copy;
}

// One rank's part of a collective.
//
// Rounds are numbered alike on all ranks: a message sent in round k is received in round k. Within a round
// all of a rank's sends and receives run concurrently and touch no byte twice, then its reduce and copy steps
// run in order. Two messages of a pair of ranks in one round arrive in the order of the steps.
struct Schedule {
  OperationKind operation = OperationKind::all_reduce;  // operation of all ranks' schedules together
  std::string algorithm;                                // name of the algorithm that generated the schedule
  int rank = 0;                                         // rank that runs the schedule
  int world = 1;                                        // number of ranks
  int root = 0;                                         // root of broadcast and reduce
  Bytes bytes;                                          // size of the data buffer
  std::size_t element_bytes = 1;                        // size of an element
  Bytes scratch;                                        // size of the scratch buffer
  int rounds = 0;                                       // number of rounds, the same on all ranks
  // Every reduce step combines all ranks' values, in the order of ranks, and no other step adds.
  bool in_rank_order = false;
  std::vector<Step> steps;  // by round; within a round communication first
};

// The input for a schedule.
//
// Every operation works in place on one buffer of `bytes`, the same on all ranks. reduce_scatter and
// all_gather divide it into one part per rank (part_of): reduce_scatter leaves the sum of part r on rank r,
// all_gather takes part r from rank r. The contents of a rank's buffer outside of its result are unspecified
// afterwards.
struct ScheduleRequest {
  OperationKind operation = OperationKind::all_reduce;  // one of scheduled_operations()
  int rank = 0;                                         // rank that runs the schedule
  int world = 1;                                        // number of ranks
  Bytes bytes{};                                        // a multiple of element_bytes; may be zero
  std::size_t element_bytes = 4;                        // pieces contain whole elements
  int root = 0;                                         // root of broadcast and reduce
  // Approximate size of the pieces of pipelined algorithms.
  Bytes segment = KiB(256);
  // Host of every rank for hierarchical, any numbers in any order; empty: all on one.
  std::vector<int> hosts{};
  // Rows of the grid for torus_2d, with ranks row by row; 0: as square as the world size allows.
  int rows = 0;
  // Adds sums in the order of ranks and rounds once, with every algorithm (rank_order_schedule in
  // algorithms/registry.h).
  bool in_rank_order = false;
};

// Returns whether one rank is the source or the destination of all data.
inline bool is_rooted(const ScheduleRequest& request) {
  return request.operation == OperationKind::broadcast || request.operation == OperationKind::reduce;
}

// Returns piece `index` of `pieces` of a range, in whole elements: the first (elements % pieces) have one
// more.
Range piece_of(const Range& whole, std::size_t element_bytes, int pieces, int index);
// Returns the part of the data that belongs to a rank in reduce_scatter and all_gather.
Range part_of(const ScheduleRequest& request, int rank);

// Cost of one rank's part of a collective.
struct Cost {
  int rounds = 0;                                // number of rounds
  std::uint64_t bytes_sent = 0;                  // to other ranks
  std::uint64_t bytes_received = 0;              // from other ranks
  std::uint64_t scratch_bytes = 0;               // size of the scratch buffer
  bool operator==(const Cost&) const = default;  // by fields
};

// Counts the cost of the steps.
Cost count_cost(const Schedule& schedule);

// Returns the name in schedule_table: "send".
const char* name(StepKind kind);
// Returns the name in schedule_table: "data".
const char* name(Buffer buffer);

// A builder of one rank's steps. Omits steps on empty ranges; both sides of a message know its size, so both
// omit it.
class ScheduleBuilder {
 public:
  // Builds the schedule of request.rank. `algorithm` becomes the schedule's name.
  ScheduleBuilder(const ScheduleRequest& request, std::string algorithm);

  const ScheduleRequest& request() const { return request_; }  // the request that was given
  int rank() const { return request_.rank; }                   // rank that runs the schedule
  int world() const { return request_.world; }                 // number of ranks

  // Returns all of the data.
  Range data() const { return {Buffer::data, 0, request_.bytes.count}; }
  // Returns piece `index` of `pieces` nearly equal ones of the data (piece_of).
  Range piece(int pieces, int index) const { return piece_of(data(), request_.element_bytes, pieces, index); }
  // Returns pieces [begin, end) of `pieces` nearly equal ones.
  Range pieces(int pieces, int begin, int end) const;
  // Allocates a new range of scratch memory.
  Range scratch(std::uint64_t bytes);

  void send(int round, int peer, const Range& range);                      // see StepKind::send
  void recv(int round, int peer, const Range& range);                      // see StepKind::recv
  void recv_reduce(int round, int peer, const Range& range);               // see StepKind::recv_reduce
  void reduce(int round, const Range& range, std::vector<Range> sources);  // see StepKind::reduce
  // Adds the steps of another schedule of this rank on the same data, starting at round `round`.
  void append(int round, const Schedule& schedule);

  // Returns the schedule, steps sorted by round; `rounds` may be more than the rounds with steps.
  Schedule finish(int rounds);

 private:
  void add(Step step);
  ScheduleRequest request_;
  Schedule schedule_;
};

// Describes a step: "send to rank 2: data [0, 1024)".
std::string describe(const Step& step);

// Formats the schedules of all ranks as a table, round by round, with one line per step.
std::string schedule_table(const std::vector<Schedule>& schedules);

}  // namespace rondo::collective
