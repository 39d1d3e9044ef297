#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/bench/collectives/exercise.h"
#include "rondo/base/bytes.h"

namespace rondo::bench {

// What is measured.
struct Case {
  std::string operation;
  Bytes bytes;
  at::ScalarType dtype = at::kFloat;
  // Data just written, four sets of buffers in rotation: caches are as after a backward pass.
  bool fresh = false;
};

// How often a burst runs: `samples` times, each `batch` operations long, so that reading the clock does not
// count.
struct Burst {
  int batch = 1;
  int samples = 1;
};

// Of one operation, over all bursts; of the slowest rank.
struct Timing {
  double p50_us = 0;
  double min_us = 0;
  int samples = 0;
};

// The columns that tell contenders apart.
struct Labels {
  std::string system;     // rondo, gloo, openmpi
  std::string algorithm;  // "auto": the system's own choice
  std::string channel;    // shm, tcp
  bool registered = false;
  std::string codec = "none";  // what travels instead of the values
};

// A system that takes part. Every method is collective: all ranks call it with the same arguments, in the
// same order.
class Contender {
 public:
  virtual ~Contender() = default;
  virtual const Labels& labels() const = 0;
  // Whether it has this operation on this dtype.
  virtual bool can(const Case& what) const = 0;
  // Makes buffers and warms up; returns whether results were right on this rank.
  virtual bool prepare(const Case& what) = 0;
  // Rough time of one operation, after prepare().
  virtual double estimate_us() = 0;
  virtual void run(const Burst& burst) = 0;
  // Of all bursts since prepare(); on this rank. Frees the buffers.
  virtual Timing finish() = 0;
};

// An engine behind c10d's interface, in this process; with a codec in the labels it all-reduces through that.
std::unique_ptr<Contender> make_backend_contender(Labels labels, c10::intrusive_ptr<c10d::Backend> backend,
                                                  Memory memory);

// p50 and minimum; `samples` in microseconds.
Timing summarize(std::vector<double> samples);

}  // namespace rondo::bench
