#pragma once

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "rondo/backend/group.h"

// Collectives on tensors for users: blocking, on any group and engine. Tensors may have any strides (over
// gloo they must be contiguous); on a group of one rank an operation is local. All ranks of the group must
// make the same calls in the same order with the same shapes and dtypes. Group::backend() offers the
// asynchronous forms (c10d::Work).
//
// Errors of all collectives:
// - The engines native and hierarchical throw MismatchError on every rank if ranks disagree on the operation,
//   the size or the dtype; PeerLostError if a rank that the operation needs is lost; TimeoutError, naming the
//   ranks that did not arrive, if the operation is not complete at the deadline. The deadline is
//   InitOptions::timeout unless Group::backend()->setTimeout() changed it. Such an error of a collective is
//   final: every later call on the group throws too. Other groups are not affected.
// - mpi throws TimeoutError at the deadline; gloo and nccl throw exceptions of libtorch, which are not
//   rondo::Error. If ranks disagree, the behaviour of these three is undefined.
// - A `root`, `destination` or `source` outside 0 to size - 1 throws UsageError before anything is sent. So
//   does a call on a rank that is not a member of the group and, over native, a call after
//   Context::shutdown().
namespace rondo {

// SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR. Only native supports AVG of integers, which rounds towards
// zero, and of booleans (true if all are); other engines throw.
using ReduceOp = c10d::ReduceOp::RedOpType;

// Reduces all ranks' tensors in place on every rank.
void all_reduce(at::Tensor& tensor, const Group& group, ReduceOp op = ReduceOp::SUM);
// Copies the tensor of `root` (a group rank) to every rank, in place.
void broadcast(at::Tensor& tensor, const Group& group, int root = 0);
// Reduces in place at `root`; other ranks' tensors are unchanged.
void reduce(at::Tensor& tensor, const Group& group, int root = 0, ReduceOp op = ReduceOp::SUM);
// Returns the ranks' tensors in rank order. All have one shape.
std::vector<at::Tensor> all_gather(const at::Tensor& tensor, const Group& group);
// Returns the ranks' tensors in rank order at `root`, and an empty list elsewhere.
std::vector<at::Tensor> gather(const at::Tensor& tensor, const Group& group, int root = 0);
// Copies tensors[r] of `root` to `output` of rank r. `tensors` has one tensor per rank at `root` and is
// ignored elsewhere.
void scatter(at::Tensor& output, const std::vector<at::Tensor>& tensors, const Group& group, int root = 0);
// Divides the first dimension evenly by the group's size and returns this rank's reduced part. Throws
// UsageError for a tensor without a dimension, and for a first dimension that does not divide by the size.
at::Tensor reduce_scatter(const at::Tensor& tensor, const Group& group, ReduceOp op = ReduceOp::SUM);
// Sends inputs[i] to rank i and receives outputs[i] from rank i. The shapes of inputs[i] may differ;
// outputs[i] has the shape that rank i sends to this rank. Throws UsageError unless `inputs` and `outputs`
// have one tensor for each rank of the group.
void all_to_all(std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, const Group& group);
// Sends input_rows[i] rows of `input` to rank i, and receives output_rows[i] rows of `output`, which is
// contiguous, from rank i: PyTorch's all_to_all_single. All dimensions but the first are equal. A number of
// rows may be 0. Over an engine without the operation (EngineTraits::all_to_all), every rank broadcasts its
// input and keeps its own rows. Throws UsageError unless both lists have one number for each rank, and add up
// to the first dimensions of `input` and `output`.
void all_to_all_single(at::Tensor& output, const at::Tensor& input,
                       const std::vector<std::int64_t>& output_rows,
                       const std::vector<std::int64_t>& input_rows, const Group& group);
// Sends to the group rank `destination`, which calls recv() with the same tag, shape and dtype. Blocking. A
// tag is from 0 to 32767. May return before the receiver has the message: over native, shared memory holds up
// to 128 KiB of it. Throws TimeoutError if the receiver has not taken the rest at the deadline.
void send(const at::Tensor& tensor, const Group& group, int destination, int tag = 0);
// Fills `tensor` with a message of the group rank `source` with this tag. Blocking. Messages with one tag
// arrive in the order sent. Throws TimeoutError if no message has arrived at the deadline and, over native,
// MismatchError if the message has another size or dtype than `tensor`.
void recv(at::Tensor& tensor, const Group& group, int source, int tag = 0);
// Blocks until all ranks of the group have called it.
void barrier(const Group& group);

// Sends the object of `root` to all ranks and returns it. Objects are any JSON, of any size, and may differ
// on every rank.
nlohmann::json broadcast_object(const nlohmann::json& object, const Group& group, int root = 0);
// Returns the objects of all ranks in rank order.
std::vector<nlohmann::json> all_gather_object(const nlohmann::json& object, const Group& group);
// Returns all ranks' objects at `root`, and an empty list elsewhere.
std::vector<nlohmann::json> gather_object(const nlohmann::json& object, const Group& group, int root = 0);

}  // namespace rondo
