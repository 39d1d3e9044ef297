#include "apps/bench/collectives/coded_exercise.h"

#include <torch/types.h>

#include <cmath>
#include <memory>

#include "rondo/backend/coded_all_reduce.h"

namespace rondo::bench {
namespace {

// Values between -1 and 1, times rank + 1.
at::Tensor values_of(int rank, std::int64_t elements) {
  return at::arange(elements, at::kFloat).remainder(1009).sub(504).div(504).mul(rank + 1);
}

// Every rank's values are encoded, and their average.
double tolerance(const std::string& codec, int ranks) {
  const auto format = collective::make_codec(codec);
  double error = format->error_bound((1.0 + ranks) / 2);
  for (int rank = 0; rank < ranks; ++rank) error += format->error_bound(rank + 1.0) / ranks;
  return error + 1e-5;
}

}  // namespace

Exercise make_coded_all_reduce(const std::string& codec, const c10::intrusive_ptr<c10d::Backend>& backend,
                               Bytes bytes) {
  const auto elements = static_cast<std::int64_t>(bytes.count / sizeof(float));
  const int ranks = backend->getSize();
  const int rank = backend->getRank();
  const at::Tensor buffer = values_of(0, elements);
  const auto reduction = std::make_shared<CodedAllReduce>(collective::make_codec(codec), backend,
                                                          ReduceOp::AVG, /*error_feedback=*/true);
  Exercise exercise;
  exercise.run = [=] { reduction->run(buffer); };
  exercise.write = [=] { buffer.copy_(values_of(0, elements)); };
  exercise.correct = [=] {
    CodedAllReduce once(collective::make_codec(codec), backend, ReduceOp::AVG, /*error_feedback=*/false);
    const at::Tensor mine = values_of(rank, elements);
    once.run(mine);
    at::Tensor expected = at::zeros({elements}, at::kDouble);
    for (int of = 0; of < ranks; ++of) expected += values_of(of, elements);
    return (mine - expected / ranks).abs().max().item<double>() <= tolerance(codec, ranks);
  };
  return exercise;
}

}  // namespace rondo::bench
