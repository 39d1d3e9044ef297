#include "rondo/train/agreement.h"

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

}  // namespace rondo
