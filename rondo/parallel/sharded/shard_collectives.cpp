#include "rondo/parallel/sharded/shard_collectives.h"

namespace rondo {

c10::intrusive_ptr<c10d::Work> start_all_gather(const Group& group, std::vector<at::Tensor> outputs,
                                                const at::Tensor& input) {
  std::vector<std::vector<at::Tensor>> lists = {std::move(outputs)};
  std::vector<at::Tensor> inputs = {input};
  return group.backend()->allgather(lists, inputs);
}

c10::intrusive_ptr<c10d::Work> start_reduce_scatter(const Group& group, const at::Tensor& output,
                                                    std::vector<at::Tensor> inputs) {
  std::vector<std::vector<at::Tensor>> lists = {std::move(inputs)};
  std::vector<at::Tensor> outputs = {output};
  return group.backend()->reduce_scatter(outputs, lists);
}

}  // namespace rondo
