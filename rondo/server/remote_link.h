#pragma once

#include <functional>
#include <memory>

#include "rondo/channel/shared_memory.h"
#include "rondo/control/connection.h"
#include "rondo/server/local_link.h"
#include "rondo/server/protocol.h"

namespace rondo::server {

// A client of one server with numbered requests: a request that arrives twice is executed once.
class RequestClient {
 public:
  RequestClient(std::unique_ptr<control::Connection> connection, std::uint32_t worker, std::string who)
      : connection_(std::move(connection)), worker_(worker), who_(std::move(who)), number_(random_nonce()) {}

  // Sends a request, repeatedly while the outcome is not_yet, and returns the answer after its Outcome.
  // Throws TimeoutError, and MismatchError with the server's message if it refuses.
  std::string ask(Operation operation, const std::function<void(control::MessageWriter&)>& fields,
                  const Deadline& deadline);
  // Requests the server's current figures. Throws like ask().
  ServerFigures figures(const Deadline& deadline);
  const std::string& whom() const { return connection_->whom(); }
  const std::string& who() const { return who_; }

 private:
  std::unique_ptr<control::Connection> connection_;
  std::uint32_t worker_;
  std::string who_;
  std::uint64_t number_;  // starts at a random value, so that a restarted process repeats no number
};

// A link through messages to a server on another host. Pushing a gradient of more than kMessageElements
// throws UsageError; such a variable needs a partitioner.
class RemoteLink final : public Link {
 public:
  // `variables` are the server's variables.
  RemoteLink(std::shared_ptr<RequestClient> asker, std::vector<VariableSpec> variables, Duration timeout);

  void pull(std::size_t variable, std::span<float> to, const Deadline& deadline) override;
  void pull_rows(std::size_t variable, std::span<const std::uint64_t> rows, float* to,
                 const Deadline& deadline) override;
  std::optional<std::vector<std::uint64_t>> changed_rows(std::size_t variable, std::uint64_t& cursor,
                                                         const Deadline& deadline) override;
  void push(std::size_t variable, std::span<const float> gradient, const Entry& how,
            const Deadline& deadline) override;
  void push_encoded(std::size_t variable, const EncodedGradient& gradient, const Entry& how,
                    const Deadline& deadline) override;
  void push_rows(std::size_t variable, std::span<const std::uint64_t> rows, const float* gradients,
                 const Entry& how, const Deadline& deadline) override;
  void begin_step(std::uint64_t step, const Deadline& deadline) override;
  void end_step(std::uint64_t step, double weight, const Deadline& deadline) override;
  void flush(const Deadline& deadline) override;
  ServerFigures figures() override;
  void rest() override;
  bool is_open() override;
  void hold(const Deadline& deadline) override;
  void release() override;
  std::uint64_t read_state(std::size_t variable, int slot, std::span<float> to) override;
  void write_state(std::size_t variable, int slot, std::span<const float> from, std::uint64_t updates,
                   const OptimizerSpec& spec) override;

 private:
  void ask_to_push(Operation operation, std::size_t variable, const Entry& how, std::size_t bytes,
                   const std::function<void(control::MessageWriter&)>& gradient, const Deadline& deadline);

  std::shared_ptr<RequestClient> asker_;
  std::vector<VariableSpec> variables_;
  Duration timeout_;  // timeout of calls without a deadline
};

// Executes a request of a worker on another host without blocking; a request that would block gets
// Outcome::not_yet. Throws DataError for a malformed message.
void serve_remote(LocalLink& link, control::MessageReader& reader, const RequestHead& head,
                  control::MessageWriter& reply);

}  // namespace rondo::server
