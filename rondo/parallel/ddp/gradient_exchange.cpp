#include "rondo/parallel/ddp/gradient_exchange.h"

#include <algorithm>

#include "rondo/backend/native/native_backend.h"
#include "rondo/parallel/ddp/bucketed_exchange.h"
#include "rondo/parallel/ddp/in_place_exchange.h"

namespace rondo {

std::unique_ptr<GradientExchange> make_gradient_exchange(const std::vector<ModelTensor>& parameters,
                                                         const Group& group, const DdpOptions& options,
                                                         CommHook hook) {
  const bool on_cpu = std::all_of(parameters.begin(), parameters.end(),
                                  [](const ModelTensor& parameter) { return parameter.tensor.is_cpu(); });
  if (!hook.run && on_cpu && dynamic_cast<const NativeBackend*>(group.backend().get())) {
    return std::make_unique<InPlaceExchange>(parameters, group, options);
  }
  return std::make_unique<BucketedExchange>(parameters, group, options, std::move(hook));
}

}  // namespace rondo
