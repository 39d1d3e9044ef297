#include "rondo/base/error.h"
#include "rondo/parallel/ddp/ddp_strategy.h"
#include "rondo/parallel/hooks/registry.h"
#include "rondo/parallel/tpu/torus.h"
#include "rondo/parallel/tpu/tpu_options.h"

namespace rondo {
namespace {

// Strategy "tpu": computes the same as ddp, with gradients reduced over a torus of ranks.
class TpuStrategy final : public DdpStrategy {
 public:
  TpuStrategy(const Context& context, const DdpStrategyOptions& buckets, const std::string& torus,
              const std::string& codec)
      : DdpStrategy("tpu", context, buckets,
                    [torus, codec](const Context& of) { return torus_hook(of, torus_of(of, torus), codec); }),
        torus_(torus) {
    torus_of(context, torus_);
  }
  void rebuild(const Context& context) override {
    torus_of(context, torus_);
    DdpStrategy::rebuild(context);
  }

 private:
  static Torus torus_of(const Context& context, const std::string& text) {
    return find_torus(text, context.world_size(), env::process_environment());
  }

  std::string torus_;
};

}  // namespace

std::unique_ptr<Strategy> TpuStrategyFactory::make(const std::string& name, const Context& context,
                                                   const TpuOptions& options) {
  DdpStrategyOptions buckets;
  static_cast<DdpOptions&>(buckets) = options;
  check_byte_codec(options.codec, name);
  return std::make_unique<TpuStrategy>(context, buckets, options.torus, options.codec);
}

}  // namespace rondo
