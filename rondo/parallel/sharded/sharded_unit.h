#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/partition.h"
#include "rondo/parallel/schedule/block_scheduler.h"
#include "rondo/parallel/sharded/buffer_pool.h"
#include "rondo/parallel/sharded/flat_parameters.h"
#include "rondo/parallel/sharded/gradient_carriers.h"
#include "rondo/parallel/sharded/shard_module.h"
#include "rondo/parallel/sharded/sharding.h"
#include "rondo/parallel/sharded/unit_gradients.h"
#include "rondo/precision/mixed_precision_policy.h"

namespace rondo {

// What the units of a model share.
struct UnitEnvironment {
  Group shard_group;    // ranks among which units are sharded
  Group replica_group;  // ranks that hold the same shards as this one; not a member: there are none
  // All ranks are on one host and reach each other's memory: the native engine works in place.
  bool in_place = false;
  Bytes block_bytes;  // of a unit's buffer that travel at a time; 0 is all of it
  BlockScheduler* scheduler = nullptr;
  BufferPool* buffers = nullptr;
  MixedPrecisionPolicy policy;
  std::set<const c10::TensorImpl*> uncast;  // parameters to which the policy's param_dtype does not apply
  // Neighbours among whom parameters stay sharded between forward and backward; not a member: all of
  // shard_group.
  Group reshard_group;
  OffloadFiles* files = nullptr;  // for shards of parameters; null: in memory
};

// One unit under one strategy: where its parameters are, how its gradients become what the optimizer needs.
// What happens when is ShardedModel's business. One thread; calls that communicate are made by all ranks in
// the same order.
class ShardedUnit {
 public:
  // Collective. Takes over the parameters' memory. `owner` is the rank of the shard group whose shared memory
  // holds a mapped buffer.
  ShardedUnit(ModelUnit unit, Sharding sharding, const UnitEnvironment& environment, int owner);

  const std::string& name() const { return name_; }
  Sharding sharding() const { return sharding_; }
  UnitState* state() const { return state_; }
  // Has parameters that are trained.
  bool trains() const;

  // For the optimizer: under the parameters' names what of each this rank optimises.
  std::vector<ModelTensor> optimized() const;

  // Whether all parameters can be read on this rank.
  bool ready() const;
  // Whether a gather has been started and not waited for.
  bool gathering() const { return presence_ == Presence::gathering; }
  // Starts gathering parameters that are not there or out of date; nothing when it is under way or ready().
  void start_gather(const BlockOrder& order);
  // Waits; afterwards ready().
  void finish_gather();
  // Frees gathered parameters, if the strategy keeps shards only.
  void release();
  // The same between forward and backward: what the reshard group needs to gather them again stays.
  void release_until_backward();
  // The optimizer has changed this rank's shard: the rest of what is there is out of date.
  void mark_updated();
  // The values of the whole parameters were changed: this rank's shard is taken from them.
  void adopt_values();
  // A barrier among the ranks is needed before parameters that others changed may be read.
  bool mapped() const;
  // Whether the model computes with roundings of what the optimizer changes.
  bool has_masters() const;
  // Gives a parameter of this unit a value.
  void set_parameter(const std::string& parameter, const at::Tensor& whole);
  // Where in the whole parameter this rank's part begins, and the sizes of the whole.
  std::int64_t part_offset(const std::string& parameter) const;
  std::vector<std::int64_t> whole_sizes(const std::string& parameter) const;

  // A backward pass is over whose gradients are not combined: they wait where those of the next add up.
  void hold_gradients();
  // The backward pass of the unit is over: starts combining gradients. Frees `.grad` of the parameters.
  void launch_gradients(const GradientWeight& weight, const BlockOrder& order);
  bool gradients_under_way() const;
  // Whether finish_gradients() would not wait for gradients that were launched.
  bool gradients_arrived() const;
  // Waits for them. `accumulate` adds to what earlier passes have left.
  void finish_gradients(bool accumulate);
  // Gives the optimizer the gradients, except of parameters for which `unused` says so (by name).
  void install_gradients(const std::vector<std::string>& unused);
  // Takes them away again.
  void remove_gradients();

  // Whether the parameter is one of this unit's; and of such a one, between the ranks' parts of a tensor of
  // its shape and the whole, see PreparedModel. assemble() is collective among the shard group.
  bool has(const std::string& parameter) const;
  at::Tensor assemble(const std::string& parameter, const at::Tensor& part) const;
  at::Tensor part_of(const std::string& parameter, const at::Tensor& whole) const;
  // The value that the optimizer has of it; collective where it is not here.
  at::Tensor whole_parameter(const std::string& parameter) const;

  // The way of what did not go through the scheduler, since the last call.
  std::vector<BlockRecord> take_records();

  // Names of trained parameters that have no gradient now.
  std::vector<std::string> without_gradient();

 private:
  enum class Presence { missing, gathering, ready };

  // The unit's parameters of one dtype, device and requires_grad, which compute in one dtype.
  struct Part {
    std::unique_ptr<FlatParameters> parameters;
    std::unique_ptr<GradientCarriers> carriers;  // null when frozen
    std::unique_ptr<UnitGradients> gradients;    // null when frozen
    std::vector<at::Tensor> optimized;           // by parameter
    std::vector<BlockScheduler::Ticket> gathers;
  };
  void add_part(std::vector<ModelTensor> parameters, int owner);
  at::ScalarType compute_dtype(const at::Tensor& parameter) const;
  void gather_part(Part& part, const BlockOrder& order);
  void gather_kept_part(Part& part, const BlockOrder& order);
  // Queues the gather of one block of `group`'s shards; `own` is this rank's.
  void gather_block(Part& part, const Group& group, std::size_t index, const BlockOrder::Place& place,
                    const at::Tensor& own, std::vector<at::Tensor> outputs);
  // The part that holds the parameter and its number there; null when there is none.
  std::pair<const Part*, std::size_t> find(const std::string& parameter) const;

  std::string name_;
  Sharding sharding_;
  UnitState* state_;
  const UnitEnvironment environment_;
  std::vector<Part> parts_;
  Presence presence_ = Presence::ready;
};

}  // namespace rondo
