#include "rondo/train/agreement.h"

#include <torch/types.h>

#include <algorithm>
#include <exception>
#include <map>
#include <vector>

#include "rondo/backend/collectives.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

nlohmann::json outcome_of(const std::function<void()>& action) {
  try {
    action();
    return nullptr;
  } catch (const UsageError& e) {
    return {{"message", e.what()}, {"usage", true}};
  } catch (const std::exception& e) {
    return {{"message", plain_message(e)}, {"usage", false}};
  }
}

}  // namespace

void run_agreed(const Context& context, const std::function<void()>& action) {
  if (context.world_size() == 1) return action();
  const std::vector<nlohmann::json> outcomes = all_gather_object(outcome_of(action), context.world());

  std::map<std::string, std::vector<int>> ranks_of_message;
  bool all_usage = true;
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank].is_null()) continue;
    ranks_of_message[outcomes[rank]["message"]].push_back(static_cast<int>(rank));
    all_usage = all_usage && outcomes[rank]["usage"].get<bool>();
  }
  if (ranks_of_message.empty()) return;
  std::vector<std::string> messages;
  for (const auto& [message, ranks] : ranks_of_message) {
    const bool everywhere = ranks.size() == outcomes.size() || ranks == std::vector<int>{0};
    messages.push_back(everywhere ? message : str("rank ", join(ranks, ", "), ": ", message));
  }
  throw AgreedError(join(messages, "; "), all_usage ? ExitCode::usage : ExitCode::failed,
                    context.rank() == 0);
}

namespace {

constexpr double kSecondsUnheard = 0.25;

}  // namespace

bool stop_on_any(Strategy& strategy, const std::function<bool()>& requested) {
  if (!requested) return false;
  const bool own = requested();
  if (strategy.context().world_size() == 1) return own;
  at::Tensor any = at::tensor({own ? 1.0 : 0.0}, at::kDouble);
  all_reduce(any, strategy.context().world(), ReduceOp::MAX);
  return any.item<double>() > 0;
}

StopAgreement::StopAgreement(Strategy& strategy, const std::function<bool()>& requested)
    : strategy_(strategy), requested_(requested), asked_at_(Clock::now()) {}

bool StopAgreement::after(std::int64_t round) {
  if (!requested_) return false;
  if (strategy_.context().world_size() == 1) return requested_();
  if (round < next_) return false;
  const double per_round = seconds(Clock::now() - asked_at_) / static_cast<double>(round - asked_after_);
  at::Tensor said = at::tensor({requested_() ? 1.0 : 0.0, per_round}, at::kDouble);
  all_reduce(said, strategy_.context().world(), ReduceOp::MAX);
  const double* values = said.data_ptr<double>();
  // The slowest rank's time, which all ranks now have, determines the interval.
  const double rounds = std::clamp(kSecondsUnheard / std::max(values[1], 1e-9), 1.0, 1e6);
  next_ = round + static_cast<std::int64_t>(rounds);
  asked_after_ = round;
  asked_at_ = Clock::now();
  return values[0] > 0;
}

}  // namespace rondo
