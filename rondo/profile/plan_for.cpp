#include "rondo/profile/plan_for.h"

#include <nlohmann/json.hpp>

#include "rondo/backend/collectives.h"
#include "rondo/base/text.h"
#include "rondo/profile/plan_of_profile.h"
#include "rondo/train/agreement.h"

namespace rondo {

std::string plan_for(const Context& context, Model model, const Batch& batch, Bytes limit,
                     const PlanForOptions& options) {
  const JobProfileOptions measure = planning_profile_options(*model.module, options);
  const std::string made_for =
      describe_job(model, batch.samples, options.optimizer.name, "of the program", context);
  const cost::Profile profile = profile_job(context, std::move(model), batch, measure, made_for);
  std::string text;
  run_agreed(context, [&] {
    if (context.rank() == 0)
      text =
          plan_of_profile(profile, context.world_size(), limit, options, str("a limit of ", to_string(limit)))
              .dump();
  });
  return broadcast_object(text, context.world()).get<std::string>();
}

}  // namespace rondo
