#include "apps/bench/step/step.h"
#include "rondo/base/text.h"

namespace rondo::bench {
namespace {

std::vector<std::string> settings_of(const Lineup& lineup, const std::string& peer) {
  if (!lineup.peer_settings.empty()) return lineup.peer_settings;
  return peer == "ddp" ? std::vector<std::string>{"usual", "fastest"} : std::vector<std::string>{"fastest"};
}

std::vector<std::string> peers_of(const Lineup& lineup) {
  if (!lineup.peer_strategies.empty()) return lineup.peer_strategies;
  std::vector<std::string> peers;
  for (const std::string& strategy : lineup.strategies) {
    const std::string peer = counterpart(strategy);
    if (!peer.empty() && std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
  }
  return peers;
}

class Starter {
 public:
  Starter(const Lineup& lineup, const StepCase& training, const FleetPlace& place)
      : lineup_(lineup), training_(training), place_(place) {}

  // `policy` is empty if all policies have their defaults or the user's values.
  void rondo(const std::string& strategy, const std::string& matmul, const SchedulePolicy& policy) {
    add(strategy, matmul, policy.name, policy.flags, {}, policy.name);
  }

  void rondo(const Variant& variant, const std::string& matmul) {
    add(variant.strategy, matmul, variant.setting, variant.schedule, variant.plan, "");
  }

  void pytorch(const std::string& strategy, const std::string& setting) {
    const std::string name = title("pytorch " + strategy, setting);
    const std::vector<std::string> command = {python(),     peer_script("step.py"),
                                              "--strategy", strategy,
                                              "--setting",  setting,
                                              "--kind",     training_.is_gpt() ? "gpt" : "mlp"};
    contestants_.push_back({"pytorch", strategy,
                            setting == "usual" ? "as usually written" : "fastest setting",
                            start_fleet(name, command, {}, training_, place_), ranks()});
  }

  std::vector<Contestant> take() { return std::move(contestants_); }

 private:
  std::size_t ranks() const { return static_cast<std::size_t>(place_.ranks); }
  void add(const std::string& strategy, const std::string& matmul, const std::string& name,
           const ScheduleFlags& schedule, const std::string& plan, const std::string& policy) {
    const bool alone = strategy == "one_device";
    // These strategies have replicas in one process instead of processes.
    const bool in_process =
        strategy == "mirrored" || strategy == "central_storage" || strategy == "data_parallel";
    const int replicas = in_process ? place_.ranks : 1;
    FleetPlace place = place_;
    if (in_process) {
      place.ranks = 1;
      place.pinned = false;
    }
    const bool own_matmul = matmul != "libtorch";
    const std::string setting = title(name, own_matmul ? "matmul " + matmul : "");
    std::vector<std::string> command = {
        own_program(),   "step-worker",        "--strategy",    strategy,
        "--model",       training_.model,      "--backend",     alone ? "native" : lineup_.backend,
        "--bucket-size", lineup_.bucket_bytes, "--joint-batch", str(lineup_.joint_batch * replicas),
        "--replicas",    str(replicas)};
    const std::vector<std::string> words = schedule.words();
    command.insert(command.end(), words.begin(), words.end());
    if (!plan.empty()) command.insert(command.end(), {"--plan", plan});
    const std::shared_ptr<Fleet> fleet = start_fleet(title("rondo " + strategy, setting), command,
                                                     {{"RONDO_MATMUL", matmul}}, training_, place);
    contestants_.push_back({.system = "rondo",
                            .strategy = strategy,
                            .setting = setting,
                            .fleet = fleet,
                            .ranks = alone || in_process ? 1 : ranks(),
                            .replicas = static_cast<std::size_t>(replicas),
                            .policy = policy,
                            .own_matmul = own_matmul});
    if (alone) {
      contestants_.push_back({.system = "rondo",
                              .strategy = strategy,
                              .setting = title("independent", setting),
                              .fleet = fleet,
                              .ranks = ranks(),
                              .policy = policy,
                              .own_matmul = own_matmul});
    }
  }
  static std::string title(const std::string& name, const std::string& setting) {
    return setting.empty() || name.empty() ? name + setting : name + ", " + setting;
  }

  const Lineup& lineup_;
  const StepCase& training_;
  const FleetPlace& place_;
  std::vector<Contestant> contestants_;
};

}  // namespace

std::string counterpart(const std::string& strategy) {
  if (strategy == "ddp") return "ddp";
  if (strategy == "zero1" || strategy == "zero2") return "zero1";
  if (strategy == "zero3" || strategy == "zero3_keep" || strategy == "hsdp") return "fsdp2";
  if (strategy == "tensor") return "tensor";
  return {};
}

std::vector<Contestant> start_contestants(const Lineup& lineup, const StepCase& training,
                                          const FleetPlace& place) {
  Starter starter(lineup, training, place);
  starter.rondo("one_device", "libtorch", {});
  // Shows the speed of the default matrix products on this processor.
  if (lineup.matmul != "libtorch") starter.rondo("one_device", lineup.matmul, {});
  const std::vector<SchedulePolicy> policies = lineup.ablation
                                                   ? schedule_ablation(lineup.schedule)
                                                   : std::vector<SchedulePolicy>{{"", lineup.schedule}};
  for (const std::string& strategy : lineup.strategies) {
    for (const SchedulePolicy& policy : policies) starter.rondo(strategy, lineup.matmul, policy);
  }
  for (const Variant& variant : lineup.variants) starter.rondo(variant, lineup.matmul);
  if (!lineup.peers) return starter.take();
  for (const std::string& peer : peers_of(lineup)) {
    for (const std::string& setting : settings_of(lineup, peer)) starter.pytorch(peer, setting);
  }
  return starter.take();
}

}  // namespace rondo::bench
