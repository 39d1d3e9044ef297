#pragma once

#include "rondo/strategy/prepared_model.h"

namespace rondo {

// While it lives every parameter of a prepared model is whole on every rank, whatever its strategy: to read
// weights, to export them, to change them. Collective in construction, and where it writes in write_back().
// Not during a training step.
//
//   {
//     const rondo::SummonFullParams full(*prepared);
//     save(model->named_parameters());
//   }
class [[nodiscard]] SummonFullParams {
 public:
  // Collective.
  explicit SummonFullParams(PreparedModel& model) : model_(model) { model_.unshard(); }
  SummonFullParams(const SummonFullParams&) = delete;
  SummonFullParams& operator=(const SummonFullParams&) = delete;

  // The values were changed, in the same way on all ranks: training goes on with them. Without this call
  // changes are lost where parameters are sharded. Ranks of one host may share the memory of parameters: let
  // all have read (a barrier) before any of them changes it.
  void write_back() const { model_.parts().reload_shards(); }

 private:
  PreparedModel& model_;
};

}  // namespace rondo
