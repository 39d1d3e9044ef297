#include "rondo/parallel/local_sgd/local_sgd_strategy.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/parallel/local_sgd/local_sgd_model.h"

namespace rondo {

LocalSgdStrategy::LocalSgdStrategy(Context context, const LocalSgdOptions& options)
    : ProcessStrategy("local_sgd", std::move(context)), options_(options) {
  const OptionTable table = LocalSgdFolder::declarations().front().options;
  for (const Option& option : table.options()) option.read(&options_, option.text(&options).value_or(""));
  if (options.sync_delay >= options.sync_period) {
    throw UsageError(str("sync-delay ", options.sync_delay,
                         ": an average must count before the next one is sent; allowed are 0 to ",
                         options.sync_period - 1, ", with --sync-period ", options.sync_period));
  }
  if (options.fragments > options.sync_period) {
    throw UsageError(str("sync-fragments ", options.fragments, ": a period of ", options.sync_period,
                         " steps has no more than as many moments"));
  }
}

std::unique_ptr<PreparedModel> LocalSgdStrategy::prepare(std::shared_ptr<torch::nn::Module> module) {
  return std::make_unique<LocalSgdModel>(std::move(module), context().world(), options_);
}

bool LocalSgdStrategy::set_mixed_precision(const MixedPrecisionPolicy&) {
  throw UsageError(
      "strategy local_sgd averages parameters, and keeps no master weights of them; use opt level O0, O1 or "
      "O3 with it, or strategy ddp");
}

std::unique_ptr<Strategy> LocalSgdFolder::make(const std::string&, const Context& context,
                                               const LocalSgdOptions& options) {
  return std::make_unique<LocalSgdStrategy>(context, options);
}

}  // namespace rondo
