#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rondo/control/connection.h"
#include "rondo/control/secret.h"
#include "rondo/server/memory.h"

namespace rondo::server {

// Environment variable with a file, as /proc/<pid>/fd/<n>, for a server's memory. The launcher holds the
// file, so that it outlives the server.
inline constexpr const char* kMemoryVariable = "RONDO_SERVER_MEMORY";

struct ServiceOptions {
  std::string address = "127.0.0.1:0";  // address to listen on
  int index = 0;                        // index of this server among those of the job
  std::string memory = {};              // path, see kMemoryVariable; empty: memory of this process only
  // Time without messages after which a worker of another host counts as lost.
  Duration silence = std::chrono::minutes(1);
  // Time after the chief's connection after which an absent worker counts as lost until it connects.
  Duration absence = std::chrono::minutes(5);
  // See env::kEndedWorkersVariable; empty: no launcher reports exited processes.
  std::string ended_workers = {};
  // Number of processes with role worker, divided evenly among the workers; 0: one process each.
  std::size_t worker_processes = 0;
};

// A parameter server. Answers workers, applies their pushes and detects lost workers, including those that
// exit before they connect. The chief (worker 0) lays out and fills the variables. With memory that was laid
// out before, continues from its content.
class Service {
 public:
  // Starts to listen. Throws CommunicationError or DataError.
  Service(const ServiceOptions& options, const control::JobSecret& secret);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  const std::string& address() const;
  // Returns whether any worker is live as far as known. Call it on the thread of run().
  bool serves_somebody() const;
  // Serves until `stop` returns true (checked every few milliseconds), or until the chief has finished and
  // all other workers have finished or are lost.
  void run(const std::function<bool()>& stop);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo::server
