#include <fstream>
#include <map>

#include "apps/bench/step/step.h"

namespace rondo::bench {
namespace {

// Minimum speed of a rondo strategy as a multiple of another contestant's, by title or prefix of a title. For
// a GPT of 25.5 M parameters, and a small MLP.
struct Promise {
  const char* of;
  const char* to;
  bool between_hosts;
  std::optional<double> gpt_float32;
  std::optional<double> gpt_bfloat16;
  std::optional<double> small;
};
constexpr Promise kPromises[] = {
    {"ddp", "pytorch ddp, as usually written", false, 1.10, 1.25, 4.0},
    {"ddp", "pytorch ddp, fastest setting", false, 1.08, {}, {}},
    {"ddp", "rondo one_device, independent", false, 0.97, {}, 0.93},
    {"ddp", "rondo one_device", false, 1.85, {}, {}},
    {"zero1", "pytorch zero1", false, 1.18, {}, {}},
    {"zero2", "pytorch zero1", false, 1.18, {}, {}},
    {"zero3", "pytorch fsdp2", false, 1.40, {}, {}},
    {"zero3", "rondo ddp", false, 0.95, {}, {}},
    {"ddp", "pytorch ddp", true, 1.25, {}, {}},
    {"tensor", "pytorch tensor", false, 1.30, {}, {}},
    {"tensor", "rondo one_device, independent", false, 0.80, {}, {}},
};
// Maximum memory of ZeRO-3 as a multiple of FSDP2's.
constexpr double kMemoryGoal = 0.75;
// Maximum step between hosts as a multiple of max(compute, line rate).
const std::map<std::string, double> kBoundGoals = {{"ddp", 1.28}, {"zero3", 1.25}};
// Goals with rondo's own choice of matrix products: if the default ones are slow, and otherwise.
constexpr double kWholeProductGoal = 2.0;
constexpr double kNeverSlower = 1.0;
constexpr double kSlowProducts = 1.2;  // the default products are slow if the others are this much faster
// A policy wins if its speedup exceeds the noise of two medians.
constexpr double kWin = 1.01;

class Ratios {
 public:
  Ratios(const StepCase& training, const Network& network, const std::vector<Contestant>& contestants)
      : training_(training), network_(network), contestants_(contestants) {}

  Json take() {
    for (const Contestant& contestant : contestants_) {
      compare_to_bound(contestant);
      if (contestant.system != "rondo" || contestant.strategy == "one_device") continue;
      if (!contestant.policy.empty()) {
        compare_policies(contestant);
      } else {
        compare_speed(contestant);
        compare_memory(contestant);
      }
    }
    return rows_;
  }

 private:
  bool headline() const { return training_.model == "gpt-25m" && training_.dtype == "float32"; }
  // Returns true if the contestant is the counterpart in PyTorch; for a strategy without a counterpart, true
  // for all strategies of PyTorch.
  static bool is_peer(const Contestant& ours, const Contestant& other) {
    const std::string expected = counterpart(ours.strategy);
    return other.system == "pytorch" && (expected.empty() || other.strategy == expected);
  }

  Json& add(const Ratio& ratio) {
    Json row = {{"ratio", ratio.ratio}, {"model", training_.model}, {"dtype", training_.dtype}};
    row.update(ratio_row(ratio));
    rows_.push_back(std::move(row));
    return rows_.back();
  }

  double speed(const Contestant& contestant) const { return 1 / item_time(training_, contestant).p50; }

  std::optional<double> speed_goal(const Contestant& ours, const Contestant& other) const {
    if (ours.own_matmul) return whole_product_goal(ours, other);
    for (const Promise& promise : kPromises) {
      if (ours.strategy != promise.of || !other.title().starts_with(promise.to)) continue;
      if (promise.between_hosts != (network_.hosts > 1)) continue;
      if (training_.model == "mlp") return promise.small;
      if (training_.model != "gpt-25m") return {};
      return training_.dtype == "float32" ? promise.gpt_float32 : promise.gpt_bfloat16;
    }
    return {};
  }

  std::optional<double> whole_product_goal(const Contestant& ours, const Contestant& other) const {
    if (!headline() || network_.hosts > 1 || ours.strategy != "ddp" || other.system != "pytorch") return {};
    const Contestant* usual = find(contestants_, "rondo one_device");
    const Contestant* chosen = find(contestants_, "rondo one_device, " + ours.setting);
    if (!usual || !chosen) return {};
    return speed(*chosen) > kSlowProducts * speed(*usual) ? kWholeProductGoal : kNeverSlower;
  }

  void compare_speed(const Contestant& ours) {
    for (const Contestant& other : contestants_) {
      const bool peer = is_peer(ours, other);
      const bool alone =
          other.system == "rondo" && other.strategy == "one_device" && other.own_matmul == ours.own_matmul;
      const bool our_ddp = other.system == "rondo" && other.strategy == "ddp" && ours.strategy != "ddp" &&
                           other.policy.empty();
      if (!peer && !alone && !our_ddp) continue;
      const PeerRatio ratio = peer_ratio(item_time(training_, ours), item_time(training_, other));
      add({training_.throughput(), ours.title(), other.title(), ratio.value, speed_goal(ours, other), true,
           ratio.of_minima});
    }
  }

  void compare_memory(const Contestant& ours) {
    for (const Contestant& other : contestants_) {
      if (!is_peer(ours, other)) continue;
      const auto compare = [&](const char* what, std::uint64_t RankSamples::*member, bool promised) {
        const std::uint64_t theirs = largest(other, member);
        if (theirs == 0) return;
        const bool goal = promised && headline() && ours.strategy == "zero3";
        add({what, ours.title(), other.title(),
             static_cast<double>(largest(ours, member)) / static_cast<double>(theirs),
             goal ? std::optional(kMemoryGoal) : std::nullopt, false});
      };
      compare("peak_resident_bytes", &RankSamples::peak_resident_bytes, true);
      compare("peak_rss_bytes", &RankSamples::peak_rss_bytes, false);
    }
  }

  void compare_to_bound(const Contestant& contestant) {
    const std::optional<double> bound = bound_ms(training_, network_, contestants_, contestant);
    if (!bound) return;
    const auto goal = kBoundGoals.find(contestant.strategy);
    const bool promised = headline() && contestant.system == "rondo" && goal != kBoundGoals.end() &&
                          contestant.policy.empty() && !contestant.own_matmul;
    add({"step_ms_p50", contestant.title(), "max(compute, line rate)", median_step(contestant) / *bound,
         promised ? std::optional(goal->second) : std::nullopt, false});
  }

  // Compares with the same strategy with one policy less, which is the previous contestant.
  void compare_policies(const Contestant& ours) {
    if (ours.policy == "fifo") return;
    const Contestant& without = *(&ours - 1);
    const double value = speed(ours) / speed(without);
    Json& row = add({training_.throughput(), ours.title(), without.title(), value});
    row["policy"] = ours.policy.substr(1);
    row["wins"] = value > kWin;
  }

  const StepCase& training_;
  const Network& network_;
  const std::vector<Contestant>& contestants_;
  Json rows_ = Json::array();
};

bool has_bfloat16_products() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("flags")) return line.find(" avx512_bf16") != std::string::npos;
  }
  return false;
}

void compare_dtypes(const Json& rows, Json& result) {
  for (const Json& half : rows) {
    if (half.contains("ratio") || half["dtype"] != "bfloat16") continue;
    for (const Json& full : rows) {
      if (full.contains("ratio") || full["dtype"] != "float32") continue;
      bool same = true;
      for (const char* key : {"system", "strategy", "setting", "model"})
        same = same && half[key] == full[key];
      if (!same || half["strategy"] == "one_device" || half["system"] != "rondo") continue;
      const char* what = half.contains("tokens_per_s") ? "tokens_per_s" : "samples_per_s";
      const std::string setting = half["setting"].get<std::string>();
      const std::string title =
          "rondo " + half["strategy"].get<std::string>() + (setting.empty() ? "" : ", " + setting);
      const bool promised = half["model"] == "gpt-25m" && half["hosts"] == 1 && setting.empty() &&
                            half["strategy"] == "ddp" && has_bfloat16_products();
      Json row = {{"ratio", what}, {"model", half["model"]}, {"dtype", "bfloat16"}};
      row.update(ratio_row({what, title + ", bfloat16", title + ", float32",
                            half[what].get<double>() / full[what].get<double>(),
                            promised ? std::optional(2.0) : std::nullopt}));
      result.push_back(std::move(row));
    }
  }
}

void count_wins(const Json& rows, Json& result) {
  std::vector<std::string> policies;
  std::map<std::string, std::pair<int, int>> wins;  // wins and comparisons
  for (const Json& row : rows) {
    if (!row.contains("wins")) continue;
    const std::string policy = row["policy"].get<std::string>();
    if (!wins.contains(policy)) policies.push_back(policy);
    auto& [won, tried] = wins[policy];
    won += row["wins"].get<bool>() ? 1 : 0;
    ++tried;
  }
  for (const std::string& policy : policies) {
    const auto [won, tried] = wins[policy];
    result.push_back({{"policy", policy}, {"won", won}, {"tried", tried}});
  }
}

}  // namespace

Json ratios(const StepCase& training, const Network& network, const std::vector<Contestant>& contestants) {
  return Ratios(training, network, contestants).take();
}

Json ratios_between_cases(const Json& rows) {
  Json result = Json::array();
  compare_dtypes(rows, result);
  count_wins(rows, result);
  return result;
}

}  // namespace rondo::bench
