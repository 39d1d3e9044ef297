#pragma once

#include <string>
#include <vector>

#include "rondo/collective/plan.h"

namespace rondo::collective {

// Writes one rank's steps. Steps on empty ranges are left out: both sides of a message know its size, so both
// leave it out.
class PlanBuilder {
 public:
  PlanBuilder(const PlanRequest& request, std::string algorithm);

  const PlanRequest& request() const { return request_; }
  int rank() const { return request_.rank; }
  int world() const { return request_.world; }

  // All of the data, piece `index` of `pieces` equal ones, and pieces [begin, end).
  Range data() const { return {Buffer::data, 0, request_.bytes.count}; }
  Range piece(int pieces, int index) const { return piece_of(data(), request_.element_bytes, pieces, index); }
  Range pieces(int pieces, int begin, int end) const;
  // Scratch memory that no other call returns.
  Range scratch(std::uint64_t bytes);

  void send(int round, int peer, const Range& range);
  void recv(int round, int peer, const Range& range);
  void recv_reduce(int round, int peer, const Range& range);
  void reduce(int round, const Range& range, std::vector<Range> sources);
  // The steps of another plan of this rank on the same data, its first round being `round`.
  void append(int round, const Plan& plan);

  // The plan, steps sorted by round; `rounds` may be more than have steps.
  Plan finish(int rounds);

 private:
  void add(Step step);
  PlanRequest request_;
  Plan plan_;
};

}  // namespace rondo::collective
