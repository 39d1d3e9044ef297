#pragma once

#include <memory>
#include <string>

#include "rondo/strategy/strategy.h"

namespace rondo {

// Base of the strategies that divide each replica of the model among ranks, along one dimension of a mesh.
// Another strategy trains the replicas along the other dimensions, such as "data".
class MeshStrategy : public Strategy {
 public:
  // `name` as in the registry. `context` has the mesh. `replicas` must have been created with
  // context.within() of the ranks that have the same part of a replica's parameters as this one.
  MeshStrategy(std::string name, Context context, std::unique_ptr<Strategy> replicas)
      : Strategy(std::move(name), std::move(context)),
        inner_(std::move(replicas)),
        readers_(readers_of(this->context())) {}

  // Ranks along "context" have the same parameters and the same samples.
  ReplicaPlacement placement() const override;
  bool set_mixed_precision(const MixedPrecisionPolicy& policy) override {
    return inner_->set_mixed_precision(policy);
  }
  using Strategy::run;
  ReplicaValue run(const std::function<at::Tensor(int replica)>& step) override;

 protected:
  // Returns the strategy of the replicas.
  Strategy& inner() const { return *inner_; }

 private:
  static Group readers_of(const Context& context);

  std::unique_ptr<Strategy> inner_;
  Group readers_;  // ranks with data of their own, if these are not all ranks of inner_
};

}  // namespace rondo
