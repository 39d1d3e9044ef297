#pragma once

#include <memory>
#include <string>

#include "rondo/parallel/ddp/ddp_strategy_options.h"
#include "rondo/parallel/registry.h"
#include "rondo/parallel/sharded/sharded_options.h"
#include "rondo/parallel/tpu/tpu_options.h"

namespace rondo::testing {

// Returns any strategy, with those of the given options that it supports.
inline std::unique_ptr<Strategy> make_strategy(const std::string& name, const Context& context,
                                               const ShardedOptions& options,
                                               const DdpOptions& buckets = {}) {
  if (name == "one_device") return all_strategies().make(name, context);
  if (name == "tpu") {
    TpuOptions tpu;
    static_cast<DdpOptions&>(tpu) = buckets;
    tpu.find_unused_parameters = options.find_unused_parameters;
    tpu.broadcast_buffers = options.broadcast_buffers;
    return all_strategies().make(name, context, tpu);
  }
  if (name != "ddp") return all_strategies().make(name, context, options);
  DdpStrategyOptions ddp;
  static_cast<CommunicationOptions&>(ddp) = options;
  static_cast<DdpOptions&>(ddp) = buckets;
  ddp.find_unused_parameters = options.find_unused_parameters;
  ddp.broadcast_buffers = options.broadcast_buffers;
  return all_strategies().make(name, context, ddp);
}

}  // namespace rondo::testing
