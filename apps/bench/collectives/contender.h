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

// The measured operation.
struct Case {
  std::string operation;
  Bytes bytes;
  at::ScalarType dtype = at::kFloat;
  // If set, input is freshly written, and four sets of buffers rotate: caches are as after a backward pass.
  bool fresh = false;
};

// The location of buffers.
enum class Memory {
  ordinary,    // malloc: an engine must copy
  registered,  // shared with the peers on this host, see registered_memory.h
};

// Returns a zero-filled tensor of one dimension.
at::Tensor make_buffer(std::int64_t elements, at::ScalarType dtype, Memory memory);

// Return a rank's input, and the sum of all inputs. Values are small whole numbers, exact in every dtype:
// 1..7 by index, plus the rank.
at::Tensor test_pattern(int rank, std::int64_t elements, at::ScalarType dtype);
at::Tensor test_sum(int ranks, std::int64_t elements, at::ScalarType dtype);

// One operation on one set of buffers. All functions are collective.
struct Exercise {
  std::function<void()> run;
  // Writes the input again, as a backward pass would; not part of the time.
  std::function<void()> write;
  // Synchronizes all ranks, if the system supports it; not part of the time.
  std::function<void()> meet;
  // Runs once on values that differ by rank and index, and checks every element of the result.
  std::function<bool()> correct;
  // Factor of a run's time: 0.5 for a ping-pong, which is two messages.
  double time_share = 1;
  int warm_ups = 5;
};

// Returns the names of all operations as in the JSON.
const std::vector<std::string>& operation_names();

// Returns the smallest size that can be divided among `ranks`, with one element each. Bytes are counted as in
// NCCL's tests: the size of the larger of input and output.
Bytes smallest_size(const std::string& operation, int ranks, at::ScalarType dtype);

// Returns the factor from algorithm bandwidth to bus bandwidth: 2(n-1)/n for all_reduce, (n-1)/n if each rank
// keeps its part, 1 otherwise.
double bus_factor(const std::string& operation, int ranks);

// Creates an exercise. `bytes` must be at least smallest_size() and a multiple of it. `direct`: uses the
// direct call of ExtendedBackend, if there is one (all_reduce).
Exercise make_exercise(const std::string& operation, const c10::intrusive_ptr<c10d::Backend>& backend,
                       Bytes bytes, at::ScalarType dtype, Memory memory, bool direct = false);

// Runs an all-reduce of float32 values between -1 and 1, times rank + 1, and checks that the result is within
// `tolerance` of their sum, or of their average.
Exercise make_inexact_all_reduce(const c10::intrusive_ptr<c10d::Backend>& backend, const at::Tensor& buffer,
                                 bool average, double tolerance,
                                 const std::function<void(const at::Tensor&)>& run,
                                 const std::function<void(const at::Tensor&)>& run_once);

// Averages float32 values through a codec, with error feedback as in training. An average keeps the values in
// range when repeated on one buffer. The result is correct within the codec's documented error.
Exercise make_coded_all_reduce(const std::string& codec, const c10::intrusive_ptr<c10d::Backend>& backend,
                               Bytes bytes);

// The length of a burst: `samples` samples of `batch` operations each, so that the time of reading the clock
// is negligible.
struct Burst {
  int batch = 1;
  int samples = 1;
};

// The time of one operation over all bursts, on the slowest rank.
struct Timing {
  double p50_us = 0;
  double min_us = 0;
  int samples = 0;
};

// The columns that distinguish contenders.
struct Labels {
  std::string system;     // rondo, gloo, openmpi, or the name of an MpiPeer
  std::string algorithm;  // "auto": the system's own choice
  std::string channel;    // threads, shm, tcp
  bool registered = false;
  // True for the system's shortest call (all_reduce of rondo) instead of one with a c10d::Work.
  bool direct = false;
  std::string codec = "none";   // encoding of transferred data
  std::string rank_order = {};  // numbering of ranks over hosts: "by host" or "in turns" (alternating)
};

// A measured system. Every method is collective: all ranks call it with the same arguments, in the same
// order.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual const Labels& labels() const = 0;
  // Returns true if it has this operation on this dtype.
  virtual bool can(const Case& what) const = 0;
  // Allocates buffers and warms up; returns true if results were correct on this rank.
  virtual bool prepare(const Case& what) = 0;
  // Returns the rough time of one operation, after prepare().
  virtual double estimate_us() = 0;
  virtual void run(const Burst& burst) = 0;
  // Returns the time of all bursts since prepare(), on this rank. Frees the buffers.
  virtual Timing finish() = 0;
};

// Returns a contender in this process that runs the exercise from `make`.
std::unique_ptr<Contender> make_exercise_contender(Labels labels, std::function<bool(const Case&)> can,
                                                   std::function<Exercise(const Case&)> make);

// Returns an engine behind c10d's interface. With a codec in the labels its all-reduce uses that codec.
std::unique_ptr<Contender> make_backend_contender(Labels labels, c10::intrusive_ptr<c10d::Backend> backend,
                                                  Memory memory);

// Returns an algorithm that runs as a schedule over a channel, in ordinary memory. It works in place, except
// reduce_scatter and all_gather, which have separate buffers as in c10d. `hosts` and `in_rank_order`: see
// ScheduleRequest.
std::unique_ptr<Contender> make_schedule_contender(const std::string& algorithm,
                                                   const std::string& channel_name,
                                                   std::shared_ptr<Channel> channel, std::vector<int> hosts,
                                                   bool in_rank_order);

// Returns the reason why Open MPI is not available (no mpirun, or built without mpicc) with the remedy; empty
// if it is.
std::string why_no_openmpi();

// An MPI implementation to measure.
struct MpiPeer {
  std::string name;      // column and JSON: "mpich"
  std::string launcher;  // program that starts the peer: `LAUNCHER RANKS FOLDER`; empty: Open MPI's mpirun
};

// Returns an MPI implementation with as many ranks as rondo, started on rank 0 and controlled over FIFOs.
// They sleep while other systems are measured. The processes end with the contender.
std::unique_ptr<Contender> make_mpi_contender(const MpiPeer& peer, int rank, int ranks);

}  // namespace rondo::bench
