#include <torch/types.h>

#include <cstdlib>

#include "apps/bench/collectives/contender.h"
#include "rondo/backend/blocking_options.h"
#include "rondo/backend/coded_collectives.h"
#include "rondo/backend/memory/registered_memory.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/codec.h"

namespace rondo::bench {
at::Tensor make_buffer(std::int64_t elements, at::ScalarType dtype, Memory memory) {
  const auto options = at::TensorOptions().dtype(dtype);
  if (memory == Memory::registered) return empty_registered({elements}, options).zero_();
  // Avoids libtorch's allocator, which may return registered memory, too.
  const std::size_t bytes = static_cast<std::size_t>(elements) * c10::elementSize(dtype);
  void* block = std::aligned_alloc(64, (bytes + 63) / 64 * 64);
  if (block == nullptr) throw Error(str("no memory for a buffer of ", to_string(Bytes{bytes})));
  return at::from_blob(
             block, {elements}, [](void* pointer) { std::free(pointer); }, options)
      .zero_();
}

at::Tensor test_pattern(int rank, std::int64_t elements, at::ScalarType dtype) {
  return (at::arange(elements, at::kLong).remainder(7) + rank + 1).to(dtype);
}

at::Tensor test_sum(int ranks, std::int64_t elements, at::ScalarType dtype) {
  at::Tensor sum = test_pattern(0, elements, at::kLong);
  for (int rank = 1; rank < ranks; ++rank) sum += test_pattern(rank, elements, at::kLong);
  return sum.to(dtype);
}

namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;
using Tensors = std::vector<at::Tensor>;

struct Shape {
  int rank;
  int ranks;
  std::int64_t total;  // elements of the larger buffer
  std::int64_t part;   // elements of one rank's part
  at::ScalarType dtype;

  at::Tensor input(int of_rank, std::int64_t elements) const {
    return test_pattern(of_rank, elements, dtype);
  }
  at::Tensor slice(const at::Tensor& tensor, int of_rank) const {
    return tensor.narrow(0, of_rank * part, part);
  }
};

// Creates an operation on one tensor, in place. `expected` is the result on this rank; undefined if any
// result is correct.
Exercise in_place(const at::Tensor& buffer, const Shape& shape, const at::Tensor& expected,
                  const std::function<void(Tensors&)>& run) {
  auto tensors = std::make_shared<Tensors>(Tensors{buffer});
  Exercise exercise;
  exercise.run = [tensors, run] { run(*tensors); };
  exercise.write = [buffer] { buffer.fill_(1); };
  exercise.correct = [=] {
    buffer.copy_(shape.input(shape.rank, buffer.numel()));
    run(*tensors);
    const bool right = !expected.defined() || at::equal(buffer, expected);
    buffer.zero_();
    return right;
  };
  return exercise;
}

// Creates an operation from one tensor into another.
Exercise between_buffers(const at::Tensor& input, const at::Tensor& output, const Shape& shape,
                         const at::Tensor& expected, const std::function<void()>& run) {
  Exercise exercise;
  exercise.run = run;
  exercise.write = [input] { input.fill_(1); };
  exercise.correct = [=] {
    input.copy_(shape.input(shape.rank, input.numel()));
    run();
    const bool right = !expected.defined() || at::equal(output, expected);
    input.zero_();
    return right;
  };
  return exercise;
}

Exercise all_reduce_by(const Backend& backend, const Shape& shape, Memory memory, bool direct) {
  return in_place(make_buffer(shape.total, shape.dtype, memory), shape,
                  test_sum(shape.ranks, shape.total, shape.dtype),
                  [backend, engine = direct ? extended(backend) : nullptr](Tensors& tensors) {
                    if (engine != nullptr) {
                      engine->all_reduce_now(tensors.front(), c10d::ReduceOp::SUM);
                    } else {
                      backend->allreduce(tensors, blocking_options<c10d::AllreduceOptions>())->wait();
                    }
                  });
}

Exercise all_reduce(const Backend& backend, const Shape& shape, Memory memory) {
  return all_reduce_by(backend, shape, memory, /*direct=*/false);
}

Exercise broadcast(const Backend& backend, const Shape& shape, Memory memory) {
  return in_place(make_buffer(shape.total, shape.dtype, memory), shape, shape.input(0, shape.total),
                  [backend](Tensors& tensors) {
                    backend->broadcast(tensors, blocking_options<c10d::BroadcastOptions>())->wait();
                  });
}

Exercise reduce(const Backend& backend, const Shape& shape, Memory memory) {
  at::Tensor expected;
  if (shape.rank == 0) expected = test_sum(shape.ranks, shape.total, shape.dtype);
  return in_place(make_buffer(shape.total, shape.dtype, memory), shape, expected,
                  [backend](Tensors& tensors) {
                    backend->reduce(tensors, blocking_options<c10d::ReduceOptions>())->wait();
                  });
}

at::Tensor parts_of_all(const Shape& shape) {
  Tensors parts;
  for (int rank = 0; rank < shape.ranks; ++rank) parts.push_back(shape.input(rank, shape.part));
  return at::cat(parts);
}

Exercise all_gather(const Backend& backend, const Shape& shape, Memory memory) {
  at::Tensor input = make_buffer(shape.part, shape.dtype, memory);
  at::Tensor output = make_buffer(shape.total, shape.dtype, memory);
  return between_buffers(input, output, shape, parts_of_all(shape), [=]() mutable {
    backend->_allgather_base(output, input, blocking_options<c10d::AllgatherOptions>())->wait();
  });
}

Exercise reduce_scatter(const Backend& backend, const Shape& shape, Memory memory) {
  at::Tensor input = make_buffer(shape.total, shape.dtype, memory);
  at::Tensor output = make_buffer(shape.part, shape.dtype, memory);
  const at::Tensor sum = test_sum(shape.ranks, shape.total, shape.dtype);
  return between_buffers(input, output, shape, shape.slice(sum, shape.rank).clone(), [=]() mutable {
    backend->_reduce_scatter_base(output, input, blocking_options<c10d::ReduceScatterOptions>())->wait();
  });
}

Exercise all_to_all(const Backend& backend, const Shape& shape, Memory memory) {
  at::Tensor input = make_buffer(shape.total, shape.dtype, memory);
  at::Tensor output = make_buffer(shape.total, shape.dtype, memory);
  Tensors expected;
  for (int rank = 0; rank < shape.ranks; ++rank) {
    expected.push_back(shape.slice(shape.input(rank, shape.total), shape.rank));
  }
  return between_buffers(input, output, shape, at::cat(expected), [=]() mutable {
    std::vector<std::int64_t> even;
    backend->alltoall_base(output, input, even, even)->wait();
  });
}

Exercise gather(const Backend& backend, const Shape& shape, Memory memory) {
  at::Tensor input = make_buffer(shape.part, shape.dtype, memory);
  at::Tensor output;
  std::vector<Tensors> outputs;
  at::Tensor expected;
  if (shape.rank == 0) {
    output = make_buffer(shape.total, shape.dtype, memory);
    outputs.emplace_back();
    for (int rank = 0; rank < shape.ranks; ++rank) outputs[0].push_back(shape.slice(output, rank));
    expected = parts_of_all(shape);
  }
  Tensors inputs = {input};
  return between_buffers(input, output, shape, expected,
                         [=]() mutable { backend->gather(outputs, inputs)->wait(); });
}

Exercise scatter(const Backend& backend, const Shape& shape, Memory memory) {
  at::Tensor input = make_buffer(shape.total, shape.dtype, memory);
  at::Tensor output = make_buffer(shape.part, shape.dtype, memory);
  std::vector<Tensors> inputs;
  if (shape.rank == 0) {
    inputs.emplace_back();
    for (int rank = 0; rank < shape.ranks; ++rank) inputs[0].push_back(shape.slice(input, rank));
  }
  Tensors outputs = {output};
  const at::Tensor expected = shape.slice(shape.input(0, shape.total), shape.rank).clone();
  return between_buffers(input, output, shape, expected,
                         [=]() mutable { backend->scatter(outputs, inputs)->wait(); });
}

// Neighbours 0-1, 2-3, ... run a ping-pong; with an odd number of ranks the last one is idle.
Exercise send_recv(const Backend& backend, const Shape& shape, Memory memory) {
  at::Tensor buffer = make_buffer(shape.total, shape.dtype, memory);
  const int peer = shape.rank ^ 1;
  const bool plays = peer < shape.ranks;
  const bool serves = shape.rank < peer;
  Tensors tensors = {buffer};
  const auto run = [=]() mutable {
    if (!plays) return;
    if (serves) backend->send(tensors, peer, 0)->wait();
    backend->recv(tensors, peer, 0)->wait();
    if (!serves) backend->send(tensors, peer, 0)->wait();
  };
  // The even rank's values travel there and back.
  const at::Tensor expected = plays ? shape.input(serves ? shape.rank : peer, shape.total) : at::Tensor();
  Exercise exercise = between_buffers(buffer, buffer, shape, expected, run);
  exercise.time_share = 0.5;
  return exercise;
}

Exercise barrier(const Backend& backend, const Shape&, Memory) {
  Exercise exercise;
  exercise.run = [backend] { backend->barrier()->wait(); };
  exercise.write = [] {};
  exercise.correct = [backend] {
    backend->barrier()->wait();
    return true;
  };
  return exercise;
}

struct Operation {
  std::string name;
  Exercise (*make)(const Backend&, const Shape&, Memory);
  bool divided;       // divided among the ranks
  double bus_rounds;  // busbw = algbw * bus_rounds * (n-1)/n; 0: algbw itself
};

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = {
      {"all_reduce", all_reduce, false, 2}, {"reduce_scatter", reduce_scatter, true, 1},
      {"all_gather", all_gather, true, 1},  {"broadcast", broadcast, false, 0},
      {"reduce", reduce, false, 0},         {"gather", gather, true, 1},
      {"scatter", scatter, true, 1},        {"all_to_all", all_to_all, true, 1},
      {"send_recv", send_recv, false, 0},   {"barrier", barrier, false, 0},
  };
  return all;
}

const Operation& find(const std::string& name) {
  for (const Operation& operation : operations()) {
    if (operation.name == name) return operation;
  }
  throw UsageError(
      str("--operations: unknown operation '", name, "'; there are: ", join(operation_names(), ", ")));
}

}  // namespace

const std::vector<std::string>& operation_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Operation& operation : operations()) all.push_back(operation.name);
    return all;
  }();
  return names;
}

Bytes smallest_size(const std::string& operation, int ranks, at::ScalarType dtype) {
  return Bytes{c10::elementSize(dtype) * static_cast<std::size_t>(find(operation).divided ? ranks : 1)};
}

double bus_factor(const std::string& operation, int ranks) {
  const double rounds = find(operation).bus_rounds;
  return rounds == 0 ? 1 : rounds * (ranks - 1) / ranks;
}

Exercise make_exercise(const std::string& operation, const Backend& backend, Bytes bytes,
                       at::ScalarType dtype, Memory memory, bool direct) {
  Shape shape{};
  shape.rank = backend->getRank();
  shape.ranks = backend->getSize();
  shape.total = static_cast<std::int64_t>(bytes.count / c10::elementSize(dtype));
  shape.part = shape.total / shape.ranks;
  shape.dtype = dtype;
  Exercise exercise = direct && operation == "all_reduce" ? all_reduce_by(backend, shape, memory, true)
                                                          : find(operation).make(backend, shape, memory);
  exercise.meet = [backend] { backend->barrier()->wait(); };
  return exercise;
}

Exercise make_inexact_all_reduce(const Backend& backend, const at::Tensor& buffer, bool average,
                                 double tolerance, const std::function<void(const at::Tensor&)>& run,
                                 const std::function<void(const at::Tensor&)>& run_once) {
  const std::int64_t elements = buffer.numel();
  const auto values_of = [elements](int rank) {
    return at::arange(elements, at::kFloat).remainder(1009).sub(504).div(504).mul(rank + 1);
  };
  buffer.copy_(values_of(0));
  Exercise exercise;
  exercise.run = [=] { run(buffer); };
  exercise.write = [=] { buffer.copy_(values_of(0)); };
  exercise.meet = [backend] { backend->barrier()->wait(); };
  exercise.correct = [=] {
    buffer.copy_(values_of(backend->getRank()));
    run_once(buffer);
    at::Tensor expected = at::zeros({elements}, at::kDouble);
    for (int rank = 0; rank < backend->getSize(); ++rank) expected += values_of(rank);
    if (average) expected /= backend->getSize();
    const bool right = (buffer - expected).abs().max().item<double>() <= tolerance;
    buffer.copy_(values_of(0));
    return right;
  };
  return exercise;
}

Exercise make_coded_all_reduce(const std::string& codec, const Backend& backend, Bytes bytes) {
  const auto format = collective::make_codec(codec);
  const int ranks = backend->getSize();
  // The tolerance covers two encodings: that of each rank's values, and that of their average.
  double tolerance = format->error_bound((1.0 + ranks) / 2) + 1e-5;
  for (int rank = 0; rank < ranks; ++rank) tolerance += format->error_bound(rank + 1.0) / ranks;
  const auto reduction = std::make_shared<CodedAllReduce>(collective::make_codec(codec), backend,
                                                          ReduceOp::AVG, /*error_feedback=*/true);
  return make_inexact_all_reduce(
      backend, at::empty({static_cast<std::int64_t>(bytes.count / sizeof(float))}, at::kFloat),
      /*average=*/true, tolerance, [=](const at::Tensor& values) { reduction->run(values); },
      [=](const at::Tensor& values) {
        CodedAllReduce(collective::make_codec(codec), backend, ReduceOp::AVG, /*error_feedback=*/false)
            .run(values);
      });
}

}  // namespace rondo::bench
