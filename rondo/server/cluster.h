#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rondo/collective/codec/codec.h"
#include "rondo/control/secret.h"
#include "rondo/server/link.h"
#include "rondo/server/placement.h"

namespace rondo::server {

// What a worker needs to reach a job's servers.
struct ClusterOptions {
  std::vector<std::string> addresses;  // of the servers, "host:port"
  std::uint32_t worker = 0;            // this one; 0 is the chief
  ServerOptions server = {};
  Partitioner partitioner = {};
  Placement placement = Placement::round_robin;
  std::string codec = "none";  // of pushed gradients that are not sparse, for collective::make_codec
  Duration timeout = std::chrono::minutes(5);  // of every wait
};

// A model's variables on all servers of a job, as one worker sees them: values travel in float32, in the
// order of rows. Each call goes to all servers that have a part; none waits for the answer of another. One
// thread uses an object. Errors are those of Link.
class Cluster {
 public:
  // Meets the servers. The chief's lay out `variables`; the other workers wait until that is done. Throws
  // MismatchError naming both sides when a server has another model, other settings or another version,
  // CommunicationError when it has another secret, TimeoutError naming the server that is not there.
  Cluster(const ClusterOptions& options, const control::JobSecret& secret,
          const std::vector<VariableSpec>& variables);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // The servers had these variables, and values for them, before this process came: it was started again, or
  // they were.
  bool was_open() const { return was_open_; }
  // Steps of this worker that the servers know.
  std::uint64_t clock() const { return clock_; }
  const std::vector<VariableSpec>& variables() const { return variables_; }
  bool all_local() const;  // all servers are of this host

  // The chief: the values are written, workers may begin. Others: waits for that.
  void open();
  void wait_until_open();

  void pull(std::size_t variable, std::span<float> to);
  void pull_rows(std::size_t variable, std::span<const std::uint64_t> rows, float* to);
  // Brings a copy of a sparse variable, which lies at `copy`, up to date: only rows that changed travel.
  // Returns how many did.
  std::uint64_t pull_changes(std::size_t variable, float* copy);
  // With a codec, servers get what it leaves of the gradient; what it leaves out is added to the next one.
  void push(std::size_t variable, std::span<const float> gradient, const Entry& how);
  // Rows in ascending order.
  void push_rows(std::size_t variable, std::span<const std::uint64_t> rows, const float* gradients,
                 const Entry& how);
  // Around the pulls and pushes of this worker's step `step`, from 0. `weight` is what its gradients count in
  // the mean of a synchronous step, which end_step() waits for.
  void begin_step(std::uint64_t step);
  void end_step(double weight);
  void flush();
  // Of the first server, whose word holds about workers.
  ServerFigures figures();
  // Of all servers together: counts of what was refused or late, added up.
  ServerFigures all_figures();
  void hold();
  void release();
  std::uint64_t read_state(std::size_t variable, int slot, std::span<float> to);
  void write_state(std::size_t variable, int slot, std::span<const float> from, std::uint64_t updates,
                   const OptimizerSpec& spec);
  // This worker pushes no more. Waits until every other worker has finished or is lost. Throws TimeoutError
  // when the first server is gone.
  void wait_for_others();
  // This worker has finished. Afterwards nothing else is called.
  void leave();

 private:
  struct Server;
  template <class Use>
  void for_parts(std::size_t variable, const Use& use);
  Deadline deadline() const { return Deadline::after(options_.timeout); }
  void meet(std::size_t server, const control::JobSecret& secret);

  ClusterOptions options_;
  std::vector<VariableSpec> variables_;
  std::vector<Shard> shards_;
  std::vector<std::vector<std::size_t>> parts_;  // by variable: its shards
  std::vector<std::uint64_t> cursors_;           // by shard
  std::unique_ptr<collective::Codec> codec_;     // null: none
  std::vector<std::vector<float>> left_out_;     // by shard: what the codec has left out so far
  std::vector<std::byte> encoded_;
  std::vector<std::unique_ptr<Server>> servers_;
  bool was_open_ = true;
  std::uint64_t clock_ = 0;
};

}  // namespace rondo::server
