#include "apps/bench/startup/worker.h"

#include <torch/nn.h>
#include <torch/optim.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "rondo/backend/context.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/format/file.h"
#include "rondo/models/mlp.h"
#include "rondo/parallel/ddp/ddp.h"

namespace rondo::bench {

void train_first_step(const std::string& report) {
  const Context context = init();
  torch::manual_seed(1);
  Mlp model;
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  DistributedDataParallel ddp(*model, context.world());

  const at::Tensor input = torch::randn({32, 784});
  const at::Tensor target = torch::randint(10, {32}, at::kLong);
  optimizer.zero_grad();
  torch::nn::functional::cross_entropy(ddp.forward(model, input), target).backward();
  optimizer.step();

  // One write a line, so that ranks do not mix.
  OutputFile(report, OutputFile::Mode::append).write(str(monotonic_ns(), "\n"));
}

}  // namespace rondo::bench
