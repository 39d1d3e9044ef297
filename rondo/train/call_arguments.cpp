#include "rondo/train/call_arguments.h"

#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "rondo/backend/collectives.h"
#include "rondo/base/text.h"
#include "rondo/format/checksum.h"
#include "rondo/train/agreement.h"

namespace rondo {
namespace {

using nlohmann::json;

// Libraries of different hosts may round a rate differently.
constexpr double kRelativeRounding = 1e-9;

bool is_same(const json& a, const json& b) {
  if (a.is_number_float() && b.is_number_float()) {
    const double x = a.get<double>(), y = b.get<double>();
    return x == y || std::abs(x - y) <= kRelativeRounding * std::max(std::abs(x), std::abs(y));
  }
  if (!a.is_array() || !b.is_array()) return a == b;
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), is_same);
}

json values_of(const std::vector<CallArgument>& arguments) {
  json values = json::array();
  for (const CallArgument& argument : arguments) values.push_back(argument.value);
  return values;
}

// Whether all ranks have the same hash of their values.
bool have_same_hash(const json& values, const Group& group) {
  const std::string text = values.dump(-1, ' ', false, json::error_handler_t::replace);
  const std::string hash = checksum_hex(std::as_bytes(std::span(text))).substr(0, 15);
  const at::Tensor own = at::tensor({static_cast<std::int64_t>(std::stoull(hash, nullptr, 16))}, at::kLong)
                             .to(group.traits().control_device());
  for (const at::Tensor& theirs : all_gather(own, group)) {
    if (theirs.item<std::int64_t>() != own.item<std::int64_t>()) return false;
  }
  return true;
}

// Whether the value is another one each time on some rank. Collective.
bool changes(const CallArgument& argument, const Group& group) {
  const bool changed = argument.again && argument.again() != argument.value;
  const std::vector<json> said = all_gather_object(changed, group);
  return std::any_of(said.begin(), said.end(), [](const json& value) { return value.get<bool>(); });
}

std::string ranks_text(const std::vector<int>& ranks) {
  return str(ranks.size() == 1 ? "rank " : "ranks ", join(ranks, ", "));
}

// "epochs is 3 on rank 0, 4 on ranks 1, 2"
std::string difference(const std::string& name, const std::vector<json>& by_rank) {
  std::map<std::string, std::vector<int>> ranks;
  std::vector<std::string> in_order;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const json& value = by_rank[rank];
    const std::string text = value.is_string() ? value.get<std::string>()
                             : value.is_null() ? "none"
                                               : value.dump();
    if (!ranks.contains(text)) in_order.push_back(text);
    ranks[text].push_back(static_cast<int>(rank));
  }
  std::vector<std::string> parts;
  for (const std::string& text : in_order) parts.push_back(str(text, " on ", ranks_text(ranks.at(text))));
  return str(name, " is ", join(parts, ", "));
}

}  // namespace

void verify_same_arguments(const Context& context, const std::string& call,
                           const std::vector<CallArgument>& arguments) {
  if (context.world_size() == 1) return;
  const Group& group = context.world();
  const json own = values_of(arguments);
  if (have_same_hash(own, group)) return;
  const std::vector<json> all = all_gather_object(own, group);
  std::vector<std::string> differences;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::vector<json> by_rank;
    for (const json& values : all) by_rank.push_back(values.at(i));
    const bool same = std::all_of(by_rank.begin(), by_rank.end(),
                                  [&](const json& value) { return is_same(value, by_rank.front()); });
    if (same || changes(arguments[i], group)) continue;
    differences.push_back(difference(arguments[i].name, by_rank));
  }
  if (differences.empty()) return;
  throw AgreedError(str(call, " was called with different arguments: ", join(differences, "; "),
                        ". All ranks must give the same ones"),
                    ExitCode::usage, context.rank() == 0);
}

}  // namespace rondo
