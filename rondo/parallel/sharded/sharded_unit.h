#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/unit_state.h"
#include "rondo/parallel/schedule/communication_queue.h"
#include "rondo/parallel/sharded/flat_parameters.h"
#include "rondo/parallel/sharded/gradient_buffers.h"
#include "rondo/parallel/sharded/shard_module.h"
#include "rondo/parallel/sharded/unit_gradients.h"
#include "rondo/parallel/sharded/unit_memory.h"
#include "rondo/parallel/sharded/unit_plans.h"
#include "rondo/parallel/sharded/zero_grad_marks.h"
#include "rondo/precision/options.h"

namespace rondo {

// What the units of a model share.
struct UnitEnvironment {
  Group shard_group;    // ranks among which units are sharded
  Group replica_group;  // ranks that hold the same shards as this one; not a member: there are none
  // All ranks reach each other's memory: parameters and gradients are where all read and reduce them.
  bool in_place = false;
  Bytes block_bytes;  // of a unit's buffer that travel at a time; 0 is all of it
  std::string codec;  // of float32 gradients, a name for collective::make_codec; empty: values travel
  CommunicationQueue* queue = nullptr;
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
  std::size_t trained_parameters() const;
  bool trains() const { return trained_parameters() > 0; }

  // For the optimizer: under the parameters' names what of each this rank optimises.
  std::vector<ModelTensor> optimized() const;

  // Whether all parameters can be read on this rank.
  bool ready() const;
  // Whether they can, or are in memory that all ranks of the host read and write.
  bool readable() const;
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
  // The values of the full parameters were changed: this rank's shard is taken from them.
  void reload_shards();
  // Full parameters that are out of date here may not be read through the model, until they are gathered or
  // reveal() is called.
  void conceal();
  void reveal();
  // A parameter that somebody gave other memory than the optimizer changes; null: none.
  const ModelTensor* moved() const;
  // Parameters of the model that get gradients and that the optimizer has other tensors for.
  std::vector<at::Tensor> sharded_parameters() const;
  // The fingerprint of what the optimizer has in place of sharded_parameters().
  std::uint64_t optimized_fingerprint() const;
  // The same of full parameters whose changes reach the optimizer by reload_shards() alone; of those that
  // are here.
  std::uint64_t full_fingerprint() const;
  // A barrier among the ranks is needed before parameters that others changed may be read.
  bool mapped() const;
  // Whether the model computes with roundings of what the optimizer changes.
  bool has_masters() const;
  // What of each parameter this rank optimises, with its place in the full one.
  std::vector<Shard> shards() const;
  // Full parameters that are here with the values that the optimizer has; not those that it changes in full.
  std::vector<Shard> full_copies() const;
  // The values of shards() were changed: full parameters are made of them anew, by the next gather.
  void publish_shards();
  // The model's tensors get memory of their own, of unspecified values.
  void give_back() const;

  // Gradients lie here that are not combined yet: from now on the optimizer's zero_grad() is noticed.
  void mark_left_gradients();
  // Whether it was called since.
  bool left_gradients_cleared() const;
  // Drops the gradients that zero_grad() meant.
  void drop_cleared_gradients();
  // The gradients that lie here are to be combined now: zero_grad() is noticed no more.
  void unmark_left_gradients();

  // A backward pass is over whose gradients are not combined: they wait where those of the next add up.
  void hold_gradients();
  // The backward pass of the unit is over: starts combining gradients. Frees `.grad` of the parameters.
  void start_reduction(const GradientWeight& weight, const BlockOrder& order);
  bool gradients_under_way() const;
  // Whether finish_gradients() would not wait for gradients that were launched.
  bool gradients_arrived() const;
  // Waits for them. `accumulate` adds to what earlier passes have left.
  void finish_gradients(bool accumulate);
  // Gives the optimizer the gradients, except of parameters for which `unused` says so (by name).
  void install_gradients(const std::vector<std::string>& unused);
  // Those, by parameter; undefined where there is none.
  std::vector<at::Tensor> gradients() const;
  // Takes them away again.
  void remove_gradients();
  // The optimizer has used the gradients of shards, or they are not wanted: the next ones replace them.
  void clear_gradients();

  // What a codec of gradients remembers from pass to pass, by name: the tensors themselves.
  std::map<std::string, at::Tensor> gradient_memory() const;

  // Names of trained parameters that have no gradient now.
  std::vector<std::string> without_gradient();

 private:
  enum class Presence { missing, gathering, ready };

  // The unit's parameters of one dtype, device and requires_grad, which compute in one dtype.
  struct Part {
    std::unique_ptr<FlatParameters> parameters;
    std::unique_ptr<GradientBuffers> gradient_buffers;  // null when frozen
    std::unique_ptr<UnitGradients> gradients;           // null when frozen
    std::vector<at::Tensor> optimized;                  // by parameter
    bool optimizes_itself = false;                      // these are the model's own
    std::vector<at::Tensor> uncleared;                  // by parameter, or empty: see keep_uncleared()
    ZeroGradMarks marks{{}};                            // of those that are not the parameters themselves
    std::vector<CommunicationQueue::Ticket> gathers;
  };
  void add_part(std::vector<ModelTensor> parameters, int owner);
  // Takes gradients of an earlier pass that no optimizer has used or cleared, to be added to the next ones.
  static void keep_uncleared(Part& part);
  at::ScalarType compute_dtype(const at::Tensor& parameter) const;
  void gather_part(Part& part, const BlockOrder& order);
  void gather_kept_part(Part& part, const BlockOrder& order);
  // Queues the gather of one block of `group`'s shards; `own` is this rank's.
  void gather_block(Part& part, const Group& group, std::size_t index, const BlockOrder::Place& place,
                    const at::Tensor& own, std::vector<at::Tensor> outputs);

  std::string name_;
  Sharding sharding_;
  UnitState* state_;
  const UnitEnvironment environment_;
  std::vector<Part> parts_;
  Presence presence_ = Presence::ready;
  bool gathers_frozen_ = false;  // parameters that are not trained are out of date too
};

// By number.
using ShardedUnits = std::vector<std::unique_ptr<ShardedUnit>>;

}  // namespace rondo
