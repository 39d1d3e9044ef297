#pragma once

#include <functional>
#include <vector>

#include "rondo/server/link.h"

namespace rondo::server {

// A link through the shared memory of a server on this host.
class LocalLink final : public Link {
 public:
  // `who` names this side and `whom` the server, in messages.
  LocalLink(ServerMemory memory, std::size_t worker, std::string who, std::string whom);

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

  // For the server, which must not block. takes_push() returns whether the variable accepts another push;
  // may_begin() returns whether a step may begin; write_part() is write_state() for a part of a variable.
  bool takes_push(std::size_t variable) const;
  bool may_begin(std::uint64_t step) const;
  void write_part(std::size_t variable, int slot, std::size_t first, std::span<const std::byte> from,
                  std::uint64_t updates, const OptimizerSpec& spec);
  // For the server: assigns the following operations to request `number`. Returns false if its entry already
  // exists: an earlier server process added it and was killed before it answered.
  bool begin_request(std::uint64_t number);
  const ServerMemory& memory() const { return memory_; }

 private:
  void wait_applied(std::uint64_t entries, const char* what, const Deadline& deadline);
  template <class Write>
  void hand_over(std::size_t variable, const Entry& entry, const Deadline& deadline, const Write& write);
  void add(const Entry& entry);
  void ring();
  void commit(std::size_t variable, std::uint64_t rows);
  void claim_optimizer(std::size_t variable, const Entry& how) const;
  [[noreturn]] void give_up(const std::string& what) const;
  WorkerState& state() const { return memory_.worker(worker_); }

  ServerMemory memory_;
  std::size_t worker_;
  std::string who_;
  std::string whom_;
  std::vector<std::uint64_t>
      pushed_;  // by variable: total number of entries of this worker after its last push of the variable
  std::vector<std::uint64_t> committed_;  // by variable: rows of the area that have pages
  std::uint64_t request_ = 0;
};

}  // namespace rondo::server
