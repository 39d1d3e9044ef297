#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "rondo/base/text.h"
#include "rondo/server/cluster.h"
#include "rondo/server/protocol.h"
#include "rondo/server/remote_link.h"
#include "rondo/server/service.h"

namespace rondo::server::tests {

using control::JobSecret;

// Servers as threads.
class Servers {
 public:
  explicit Servers(int count, const std::string& memory = "", Duration silence = std::chrono::minutes(1))
      : Servers(count, ServiceOptions{.memory = memory, .silence = silence}) {}
  Servers(int count, ServiceOptions given) {
    for (int i = 0; i < count; ++i) {
      given.index = i;
      services_.push_back(std::make_unique<Service>(given, secret));
      addresses.push_back(services_.back()->address());
      threads_.emplace_back([this, service = services_.back().get()](const std::stop_token& stop) {
        service->run([&] { return stop.stop_requested(); });
        ++ended_;
      });
    }
  }

  ClusterOptions options(std::uint32_t worker, const ServerOptions& server) const {
    return {.addresses = addresses, .worker = worker, .server = server, .timeout = std::chrono::seconds(60)};
  }

  // Returns whether all servers end by themselves.
  bool all_end() const {
    const Deadline limit = Deadline::after(std::chrono::seconds(60));
    while (ended_ < services_.size() && !limit.passed()) std::this_thread::yield();
    return ended_ == services_.size();
  }

  JobSecret secret = JobSecret::make();
  std::vector<std::string> addresses;

 private:
  std::atomic<std::size_t> ended_ = 0;
  std::vector<std::unique_ptr<Service>> services_;
  std::vector<std::jthread> threads_;
};

inline Entry sgd(double rate) {
  Entry entry;
  entry.spec.learning_rate = rate;
  return entry;
}

inline const std::vector<VariableSpec> kVariables = {
    {"weight", 10, 3, false}, {"table", 100, 4, true}, {"bias", 3, 1, false}};

// Connects a worker that claims to be on another host.
inline std::shared_ptr<RequestClient> greet(std::unique_ptr<control::Connection> connection,
                                            std::uint32_t worker, const ServerOptions& options) {
  auto asker = std::make_shared<RequestClient>(std::move(connection), worker, str("worker ", worker));
  asker->ask(
      Operation::hello,
      [&](control::MessageWriter& writer) {
        writer.number(std::int64_t{1})
            .text("another host")
            .text("other")
            .number(static_cast<std::uint32_t>(worker == 0));
        write_options(writer, options);
        write_variables(writer, kVariables);
      },
      Deadline::after(std::chrono::seconds(60)));
  return asker;
}

inline std::shared_ptr<RequestClient> meet_from_another_host(const Servers& servers, std::uint32_t worker,
                                                             const ServerOptions& options) {
  return greet(std::make_unique<control::Connection>(servers.addresses[0], servers.secret,
                                                     str("worker ", worker), "server 0"),
               worker, options);
}

// Waits until a worker is lost; returns its figures as `seen` reports them.
inline WorkerFigures lost_worker(Cluster& seen, std::size_t worker) {
  const Deadline limit = Deadline::after(std::chrono::seconds(60));
  while (seen.figures().workers[worker].phase != WorkerPhase::lost && !limit.passed())
    std::this_thread::yield();
  return seen.figures().workers[worker];
}

}  // namespace rondo::server::tests
