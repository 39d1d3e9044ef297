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

// Options for connecting a worker to a job's servers.
struct ClusterOptions {
  std::vector<std::string> addresses;  // addresses of the servers, "host:port"
  std::uint32_t worker = 0;            // number of this worker; 0 is the chief
  ServerOptions server = {};
  Partitioner partitioner = {};
  Placement placement = Placement::round_robin;
  std::string codec = "none";  // codec of dense gradients that are pushed, for collective::make_codec
  Duration timeout = std::chrono::minutes(5);  // limit of every wait
};

// A worker's view of a model's variables on all servers of a job. Values are transferred in float32, in row
// order. Each call goes to all servers that hold a shard. Not thread-safe. Errors are those of Link.
class Cluster {
 public:
  // Connects to the servers. The chief's call lays out `variables` on them; the other workers wait until that
  // is done. Throws MismatchError naming both sides if a server has a different model, settings or version,
  // CommunicationError if its secret differs, and TimeoutError naming a server that does not answer.
  Cluster(const ClusterOptions& options, const control::JobSecret& secret,
          const std::vector<VariableSpec>& variables);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Returns whether the servers already had these variables with values when this process connected: this
  // process or the servers were restarted.
  bool was_open() const { return was_open_; }
  // Returns the number of this worker's steps that the servers have applied.
  std::uint64_t clock() const { return clock_; }
  const std::vector<VariableSpec>& variables() const { return variables_; }
  bool all_local() const;  // whether all servers are on this host

  // open(): the chief reports that the values are written and that workers may start. wait_until_open(): the
  // other workers block until then.
  void open();
  void wait_until_open();

  void pull(std::size_t variable, std::span<float> to);
  void pull_rows(std::size_t variable, std::span<const std::uint64_t> rows, float* to);
  // Updates a copy of a sparse variable at `copy`, transferring only changed rows. Returns the number of
  // transferred rows.
  std::uint64_t pull_changes(std::size_t variable, float* copy);
  // Pushes a dense gradient. With a codec, the servers receive its decoded output; `residual` is the error
  // feedback of the variable, for Codec::encode().
  void push(std::size_t variable, std::span<const float> gradient, const Entry& how,
            std::span<float> residual = {});
  const collective::Codec* codec() const { return codec_.get(); }  // null without a codec
  const std::string& codec_name() const { return options_.codec; }
  // Pushes rows of a sparse gradient; `rows` must be ascending.
  void push_rows(std::size_t variable, std::span<const std::uint64_t> rows, const float* gradients,
                 const Entry& how);
  // Enclose the pulls and pushes of this worker's step `step`, from 0. `weight` is the weight of its
  // gradients in the mean of a synchronous step; end_step() blocks until that step is applied.
  void begin_step(std::uint64_t step);
  void end_step(double weight);
  void flush();
  // Returns the figures of the first server, which are authoritative for workers.
  ServerFigures figures();
  // Returns the figures of all servers combined: adds up refused and queued pushes, and takes the maximum of
  // late and lost steps.
  ServerFigures all_figures();
  void hold();
  void release();
  std::uint64_t read_state(std::size_t variable, int slot, std::span<float> to);
  void write_state(std::size_t variable, int slot, std::span<const float> from, std::uint64_t updates,
                   const OptimizerSpec& spec);
  // Reports that this worker pushes nothing more. Blocks until every other worker has finished or is lost.
  // Throws TimeoutError if the first server does not answer.
  void wait_for_others();
  // Reports that this worker has finished. No other call may follow.
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
  std::vector<std::uint64_t> cursors_;           // by shard: cursor for changed rows
  std::unique_ptr<collective::Codec> codec_;     // null: no codec
  std::vector<std::byte> encoded_;
  std::vector<std::unique_ptr<Server>> servers_;
  bool was_open_ = true;
  std::uint64_t clock_ = 0;
};

}  // namespace rondo::server
