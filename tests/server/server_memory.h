#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "rondo/server/local_link.h"
#include "rondo/server/updater.h"

namespace rondo::server_testing {

inline Deadline soon() { return Deadline::after(std::chrono::seconds(60)); }

inline server::ServerMemory make_memory(const std::vector<server::VariableSpec>& variables,
                                        const server::ServerOptions& options) {
  auto memory = std::make_shared<SharedMemory>(
      SharedMemory::create("test", Bytes{server::ServerMemory::size_of(variables, options)}));
  return server::ServerMemory::format(std::move(memory), variables, options);
}

inline server::LocalLink link_of(const server::ServerMemory& memory, std::size_t worker) {
  memory.worker(worker).phase.store(static_cast<std::uint32_t>(server::WorkerPhase::live));
  return {memory, worker, "worker " + std::to_string(worker), "server 0"};
}

// A server thread for the lifetime of the object.
class ServerThread {
 public:
  explicit ServerThread(const server::ServerMemory& memory)
      : thread_([memory](std::stop_token stop) {
          server::Updater updater(memory);
          while (!stop.stop_requested()) {
            if (!updater.run_once()) updater.wait(std::chrono::milliseconds(5));
          }
        }) {}

 private:
  std::jthread thread_;
};

}  // namespace rondo::server_testing
