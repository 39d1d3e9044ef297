#pragma once

#include <functional>
#include <memory>
#include <string>

#include "rondo/control/connection.h"
#include "rondo/control/secret.h"
#include "rondo/server/memory.h"

namespace rondo::server {

// A file, as /proc/<pid>/fd/<n>, in which a server's memory lies; the launcher holds it, so that it outlives
// the server.
inline constexpr const char* kMemoryVariable = "RONDO_SERVER_MEMORY";

struct ServiceOptions {
  std::string address = "127.0.0.1:0";  // where it listens
  int index = 0;                        // among the job's servers
  std::string memory = {};              // see kMemoryVariable; empty: memory that ends with this process
  // A worker of another host that says nothing for so long counts as lost.
  Duration silence = std::chrono::minutes(1);
  // A worker that has not come so long after the chief did counts as lost until it comes.
  Duration absence = std::chrono::minutes(5);
  // See env::kEndedWorkersVariable; empty: no launcher tells which processes have ended.
  std::string ended_workers = {};
  // Processes of role worker, of which each worker has as many; 0: one each.
  std::size_t worker_processes = 0;
};

// A parameter server: answers workers, applies what they push, notices which of them are gone, also of those
// that ended before they came. The chief (worker 0) lays out the variables and fills them; the others find
// them. With memory that was laid out before, it goes on from there.
class Service {
 public:
  // Listens. Throws CommunicationError or DataError.
  Service(const ServiceOptions& options, const control::JobSecret& secret);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  const std::string& address() const;
  // A worker is there, or seems to be. On the thread of run().
  bool serves_somebody() const;
  // Serves until `stop` says so, asked every few milliseconds, or all workers have finished or are lost and
  // the chief has finished.
  void run(const std::function<bool()>& stop);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace rondo::server
