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

// Objects that all units of a model share.
struct UnitEnvironment {
  Group shard_group;    // ranks among which units are sharded
  Group replica_group;  // ranks that hold the same shards as this one; not a member if there are none
  // Whether all ranks can access each other's memory, so that parameters and gradients are shared and reduced
  // in place.
  bool in_place = false;
  Bytes segment_bytes;  // size of the segments that a unit's buffer is cut into; 0 is a single segment
  std::string codec;    // codec of float32 gradients, a name for collective::make_codec(); empty: none
  CommunicationQueue* queue = nullptr;
  BufferPool* buffers = nullptr;
  MixedPrecisionPolicy policy;
  std::set<const c10::TensorImpl*> uncast;  // parameters to which the policy's param_dtype does not apply
  // Neighbouring ranks among which parameters stay sharded between forward and backward. Not a member: all of
  // shard_group.
  Group reshard_group;
  OffloadFiles* files = nullptr;  // storage of parameter shards; null: in memory
};

// One unit under one strategy: storage of its parameters, and the reduction of its gradients for the
// optimizer. ShardedModel decides when each operation runs. Not thread-safe; all ranks make the communicating
// calls in the same order.
class ShardedUnit {
 public:
  // Takes over the parameters' memory. `owner`: rank of the shard group whose shared memory holds a mapped
  // buffer. Collective.
  ShardedUnit(ModelUnit unit, Sharding sharding, const UnitEnvironment& environment, int owner);

  const std::string& name() const { return name_; }
  Sharding sharding() const { return sharding_; }
  UnitState* state() const { return state_; }
  std::size_t trained_parameters() const;
  bool trains() const { return trained_parameters() > 0; }

  // Returns the tensors that this rank optimizes, under the names of the parameters.
  std::vector<ModelTensor> optimized() const;

  // Returns true if all parameters can be read on this rank.
  bool ready() const;
  // Returns true if ready(), or if the parameters are in memory that all ranks of the host share.
  bool readable() const;
  // Returns true if a gather was started and not waited for.
  bool gathering() const { return presence_ == Presence::gathering; }
  // Starts gathering parameters that are missing or outdated. No-op if a gather is in flight or ready().
  void start_gather(const SegmentOrder& order);
  // Blocks until the gather is complete, starting it if necessary. Afterwards ready().
  void finish_gather();
  // Frees gathered parameters, if the strategy keeps only shards.
  void release();
  // Like release(), between forward and backward: keeps the shards that the reshard group needs for the next
  // gather.
  void release_until_backward();
  // Marks other ranks' parameters as outdated after the optimizer has updated this rank's shard.
  void mark_updated();
  // Updates this rank's shard after the values of the full parameters were changed.
  void reload_shards();
  // Forbid and permit reads of outdated full parameters through the model. A gather also permits them.
  void conceal();
  void reveal();
  // Returns a parameter that was moved to other memory than the optimizer updates; null if there is none.
  const ModelTensor* moved() const;
  // Returns the model's trained parameters for which the optimizer has other tensors.
  std::vector<at::Tensor> sharded_parameters() const;
  // Returns the fingerprint of the optimizer's tensors for sharded_parameters().
  std::uint64_t optimized_fingerprint() const;
  // Returns the fingerprint of full parameters present here whose changes reach the optimizer only by
  // reload_shards().
  std::uint64_t full_fingerprint() const;
  // Returns true if ranks need a barrier before they read parameters that others changed.
  bool mapped() const;
  // Returns true if the model computes with rounded copies of the optimizer's master weights.
  bool has_masters() const;
  // Returns this rank's shard of each parameter, with its position in the full parameter.
  std::vector<Shard> shards() const;
  // Returns full parameters present here with up-to-date values, except those that the optimizer updates as a
  // whole.
  std::vector<Shard> full_copies() const;
  // Marks full parameters as outdated after the values of shards() were changed; the next gather renews them.
  void publish_shards();
  // Gives the model's tensors memory of their own, with unspecified values.
  void give_back() const;

  // Marks gradients here that are not reduced yet, to detect a call of the optimizer's zero_grad().
  void mark_left_gradients();
  // Returns true if zero_grad() was called since mark_left_gradients().
  bool left_gradients_cleared() const;
  // Drops the gradients that zero_grad() was meant to clear.
  void drop_cleared_gradients();
  // Ends the detection of zero_grad(), before the gradients are reduced.
  void unmark_left_gradients();

  // Keeps the gradients of a backward pass without a reduction, to be added to those of the next pass.
  void hold_gradients();
  // Starts reducing gradients after the backward pass of the unit. Resets `.grad` of the parameters.
  void start_reduction(const GradientWeight& weight, const SegmentOrder& order);
  bool gradients_under_way() const;
  // Returns true if finish_gradients() would not block on launched gradients.
  bool gradients_arrived() const;
  // Blocks until the reduction is complete. `accumulate`: adds to the result of earlier passes.
  void finish_gradients(bool accumulate);
  // Installs the gradients for the optimizer, except for the parameters named in `unused`.
  void install_gradients(const std::vector<std::string>& unused);
  // Returns the installed gradients, by parameter; undefined for a parameter without one.
  std::vector<at::Tensor> gradients() const;
  // Removes the installed gradients after the optimizer's step, and recycles their memory.
  void remove_gradients();
  // Drops gradients of shards that the optimizer has used, or that are not wanted; the next ones replace
  // them.
  void clear_gradients();

  // Returns the state that the gradients' codec keeps between passes, by name; the tensors are not copied.
  CommState gradient_memory() const;

  // Returns the names of trained parameters that have no gradient now.
  std::vector<std::string> without_gradient();

 private:
  enum class Presence { missing, gathering, ready };

  // The unit's parameters with the same dtype, device, requires_grad and dtype of computation.
  struct Part {
    std::unique_ptr<FlatParameters> parameters;
    std::unique_ptr<GradientBuffers> gradient_buffers;  // null when frozen
    std::unique_ptr<UnitGradients> gradients;           // null when frozen
    std::vector<at::Tensor> optimized;                  // tensors for the optimizer, by parameter
    bool optimizes_itself = false;                      // whether `optimized` are the model's own parameters
    std::vector<at::Tensor> uncleared;                  // by parameter, or empty; see keep_uncleared()
    ZeroGradMarks marks{{}};  // marks on `optimized`, unless these are the parameters
    std::vector<CommunicationQueue::Ticket> gathers;
  };
  void add_part(std::vector<ModelTensor> parameters, int owner);
  // Keeps gradients of an earlier pass that were neither used nor cleared, to be added to the next ones.
  static void keep_uncleared(Part& part);
  at::ScalarType compute_dtype(const at::Tensor& parameter) const;
  void gather_part(Part& part, const SegmentOrder& order);
  void gather_kept_part(Part& part, const SegmentOrder& order);
  // Queues the gather of one segment of `group`'s shards; `own` is this rank's.
  void gather_segment(Part& part, const Group& group, std::size_t index, const SegmentOrder::Place& place,
                      const at::Tensor& own, std::vector<at::Tensor> outputs);

  std::string name_;
  Sharding sharding_;
  UnitState* state_;
  const UnitEnvironment environment_;
  std::vector<Part> parts_;
  Presence presence_ = Presence::ready;
  bool gathers_frozen_ = false;  // whether frozen parameters are outdated too
};

// Units by number.
using ShardedUnits = std::vector<std::unique_ptr<ShardedUnit>>;

}  // namespace rondo
