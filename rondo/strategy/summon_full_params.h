#pragma once

#include "rondo/strategy/prepared_model.h"

namespace rondo {

// A scope in which every parameter of a prepared model is whole on every rank, under any strategy: to read,
// export or change weights. The constructor and write_back() are collective. Not during a training step.
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

  // Keeps values that were changed in the same way on all ranks: training continues with them. Without this
  // call changes to sharded parameters are lost. Ranks of one host may share the memory of parameters:
  // synchronise (a barrier) after all have read and before any changes them.
  void write_back() const { model_.parts().reload_shards(); }

 private:
  PreparedModel& model_;
};

}  // namespace rondo
