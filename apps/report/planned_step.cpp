#include "apps/report/planned_step.h"

#include <nlohmann/json.hpp>

#include "apps/plan/document.h"
#include "rondo/base/text.h"
#include "rondo/cost/profile_json.h"
#include "rondo/cost/step_plan.h"
#include "rondo/plan/plan_file.h"

namespace rondo {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLimits = 6;
constexpr Duration kSweepTime = std::chrono::seconds(3);

Json draw(const std::filesystem::path& plan_path, const std::filesystem::path& profile_path) {
  const Json json = cost::read_plan_json(plan_path.string());
  cost::StepOptions options;
  options.ranks = json.at("ranks").get<int>();
  options.shard_group = json.value("shard_group", 0);
  options.micro_batches = json.value("micro_batches", 1);
  const cost::StepModel model = cost::make_step_model(cost::read_profile(profile_path.string()), options);
  plan::PlanResult answer;
  answer.plan = plan::plan_from_json(model, json, plan_path.string());
  answer.feasible = true;
  plan::PlannerOptions planner;
  planner.memory_limit = json.at("memory_limit_bytes").get<std::uint64_t>();
  planner.time_limit = kSweepTime;
  return planner_document(model, json, answer, planner.memory_limit, plan::sweep(model, planner, kLimits))
      .at("planner");
}

}  // namespace

Json planned_step(const std::filesystem::path& run_directory, std::vector<std::string>& notes) {
  const std::filesystem::path plan = run_directory / "plan.json";
  const std::filesystem::path profile = run_directory / "profile.json";
  if (!std::filesystem::exists(plan) || !std::filesystem::exists(profile)) return nullptr;
  try {
    return draw(plan, profile);
  } catch (const std::exception& e) {
    notes.push_back(str("The planned step cannot be drawn: ", e.what()));
    return nullptr;
  }
}

}  // namespace rondo
