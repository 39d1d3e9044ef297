#include "rondo/parallel/schedule/leader.h"

#include <torch/types.h>

#include <chrono>

namespace rondo {
namespace {

constexpr int kTag = 7;
constexpr std::int64_t kStopped = -1;

void send_to_all(const Group& line, std::int64_t word) {
  std::vector<std::vector<at::Tensor>> messages;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int rank = 1; rank < line.size(); ++rank) {
    messages.push_back({at::full({1}, word, at::kLong)});
    works.push_back(line.backend()->send(messages.back(), rank, kTag));
  }
  for (const auto& work : works) work->wait();
}

}  // namespace

void Leader::tell(std::uint64_t block) { send_to_all(line_, static_cast<std::int64_t>(block)); }

std::optional<std::uint64_t> Leader::hear() {
  // The leader may have nothing to start for as long as an evaluation takes.
  constexpr auto kNoLimit = std::chrono::hours(24 * 30);
  std::vector<at::Tensor> message = {at::empty({1}, at::kLong)};
  line_.backend()->recv(message, 0, kTag)->wait(kNoLimit);
  const auto word = message.front().item<std::int64_t>();
  if (word == kStopped) return std::nullopt;
  return static_cast<std::uint64_t>(word);
}

void Leader::stop() noexcept {
  try {
    send_to_all(line_, kStopped);
  } catch (const std::exception&) {
    // Whoever cannot hear it any more need not.
  }
}

}  // namespace rondo
