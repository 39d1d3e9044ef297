#pragma once

#include <c10/core/ScalarType.h>

#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "rondo/base/bytes.h"

namespace rondo {
class Channel;
}

// The systems of `rondo bench collectives`, and the operations that they run.
namespace rondo::bench {

// The operation that is measured.
struct Case {
  std::string operation;
  Bytes bytes;
  at::ScalarType dtype = at::kFloat;
  // Data just written, four sets of buffers in rotation: caches are as after a backward pass.
  bool fresh = false;
};

// The location of buffers.
enum class Memory {
  ordinary,    // malloc: an engine must copy
  registered,  // shared with the peers on this host, see registered_memory.h
};

// Returns a zero-filled tensor of one dimension.
at::Tensor make_buffer(std::int64_t elements, at::ScalarType dtype, Memory memory);

// Returns a rank's input: small whole numbers, exact in every dtype, 1..7 by place, plus the rank. And its
// sum over ranks.
at::Tensor test_pattern(int rank, std::int64_t elements, at::ScalarType dtype);
at::Tensor test_sum(int ranks, std::int64_t elements, at::ScalarType dtype);

// One operation on one set of buffers. All functions are collective.
struct Exercise {
  std::function<void()> run;
  // Writes the input anew, as a backward pass would; not part of the time.
  std::function<void()> write;
  // Returns when all ranks have called it, where there is such a thing; not part of the time.
  std::function<void()> meet;
  // Runs once on numbers that differ by rank and place, and checks every element of the result.
  std::function<bool()> correct;
  // The part of a run that counts: a ping-pong is two messages.
  double time_share = 1;
  int warm_ups = 5;
};

// Returns the names of all operations, as in the JSON.
const std::vector<std::string>& operation_names();

// Returns the smallest size that can be divided among `ranks`, one element each. Bytes are counted as NCCL's
// tests count them: the size of the larger of input and output.
Bytes smallest_size(const std::string& operation, int ranks, at::ScalarType dtype);

// Returns the algorithm bandwidth's share that each link carried: 2(n-1)/n for all_reduce, (n-1)/n where each
// rank keeps its part, 1 otherwise.
double bus_factor(const std::string& operation, int ranks);

// `bytes` must be at least smallest_size() and a multiple of it. `direct`: by ExtendedBackend's direct
// call, where there is one (all_reduce).
Exercise make_exercise(const std::string& operation, const c10::intrusive_ptr<c10d::Backend>& backend,
                       Bytes bytes, at::ScalarType dtype, Memory memory, bool direct = false);

// Runs an all-reduce of float32 values between -1 and 1, times rank + 1, and checks that the result is within
// `tolerance` of their sum, or of their average.
Exercise make_inexact_all_reduce(const c10::intrusive_ptr<c10d::Backend>& backend, const at::Tensor& buffer,
                                 bool average, double tolerance,
                                 const std::function<void(const at::Tensor&)>& run,
                                 const std::function<void(const at::Tensor&)>& run_once);

// Averages float32 values through a codec, with error feedback as in training (an average, so that running it
// again and again on one buffer keeps the numbers in range). The result is correct within the codec's
// documented error.
Exercise make_coded_all_reduce(const std::string& codec, const c10::intrusive_ptr<c10d::Backend>& backend,
                               Bytes bytes);

// The length of a burst: `samples` times, each `batch` operations long, so that reading the clock does not
// count.
struct Burst {
  int batch = 1;
  int samples = 1;
};

// The time of one operation, over all bursts; of the slowest rank.
struct Timing {
  double p50_us = 0;
  double min_us = 0;
  int samples = 0;
};

// The columns that tell contenders apart.
struct Labels {
  std::string system;     // rondo, gloo, openmpi
  std::string algorithm;  // "auto": the system's own choice
  std::string channel;    // threads, shm, tcp
  bool registered = false;
  // The shortest call there is where a system has one (all_reduce of rondo), instead of a c10d::Work.
  bool direct = false;
  std::string codec = "none";   // encoding of what travels
  std::string rank_order = {};  // between hosts: "by host", "in turns"
};

// A system that takes part. Every method is collective: all ranks call it with the same arguments, in the
// same order.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual const Labels& labels() const = 0;
  // Returns whether it has this operation on this dtype.
  virtual bool can(const Case& what) const = 0;
  // Makes buffers and warms up; returns whether results were right on this rank.
  virtual bool prepare(const Case& what) = 0;
  // Returns the rough time of one operation, after prepare().
  virtual double estimate_us() = 0;
  virtual void run(const Burst& burst) = 0;
  // Returns the time of all bursts since prepare(), on this rank. Frees the buffers.
  virtual Timing finish() = 0;
};

// A contender in this process, of anything that can be made into an Exercise.
std::unique_ptr<Contender> make_exercise_contender(Labels labels, std::function<bool(const Case&)> can,
                                                   std::function<Exercise(const Case&)> make);

// An engine behind c10d's interface; with a codec in the labels it all-reduces through that.
std::unique_ptr<Contender> make_backend_contender(Labels labels, c10::intrusive_ptr<c10d::Backend> backend,
                                                  Memory memory);

// An algorithm, run as a plan over a channel, in ordinary memory: in place, but from a buffer of its own
// where c10d's reduce_scatter and all_gather have one. `hosts` and `in_rank_order`: see PlanRequest.
std::unique_ptr<Contender> make_plan_contender(const std::string& algorithm, const std::string& channel_name,
                                               std::shared_ptr<Channel> channel, std::vector<int> hosts,
                                               bool in_rank_order);

// Returns why Open MPI cannot take part here (no mpirun, or built without mpicc), with the way to get it;
// empty when it can.
std::string why_no_openmpi();

// Open MPI's own ranks, as many as ours, started by mpirun on rank 0 and commanded over FIFOs; they sleep
// while others are measured. The processes end with the contender.
std::unique_ptr<Contender> make_openmpi_contender(int rank, int ranks);

}  // namespace rondo::bench
