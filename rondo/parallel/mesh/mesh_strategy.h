#pragma once

#include <memory>
#include <string>

#include "rondo/strategy/strategy.h"

namespace rondo {

// Base of the strategies that divide each replica of the model among ranks, along a dimension of a mesh: what
// concerns replicas is done by another strategy along the other dimensions, "data" at last.
class MeshStrategy : public Strategy {
 public:
  // `name` as in the registry. `context` has the mesh; `replicas` was made with context.within() of the ranks
  // that have the same part of a replica's parameters as this one.
  MeshStrategy(std::string name, Context context, std::unique_ptr<Strategy> replicas)
      : Strategy(std::move(name), std::move(context)),
        inner_(std::move(replicas)),
        readers_(readers_of(this->context())) {}

  // Ranks along "context" have the same parameters, and the same samples.
  ReplicaPlacement placement() const override;
  bool set_mixed_precision(const MixedPrecisionPolicy& policy) override {
    return inner_->set_mixed_precision(policy);
  }
  using Strategy::run;
  ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override;

 protected:
  Strategy& inner() const { return *inner_; }  // the strategy of the replicas

 private:
  static Group readers_of(const Context& context);

  std::unique_ptr<Strategy> inner_;
  Group readers_;  // that read data of their own, where these are not all of inner_'s
};

}  // namespace rondo
