#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace rondo {

// What a planned run was to do, for the page: the plan's summary, its simulated step, and step times of plans
// and baselines at limits around it (looked for anew, in about three seconds). From plan.json and
// profile.json in the run's directory; null where they are not there, or cannot be read, which a note says.
nlohmann::ordered_json planned_step(const std::filesystem::path& run_directory,
                                    std::vector<std::string>& notes);

}  // namespace rondo
