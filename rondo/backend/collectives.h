#pragma once

#include <ATen/core/Tensor.h>
#include <nlohmann/json.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "rondo/backend/group.h"

// Collectives on tensors for users: blocking, on any group and engine. Tensors may have any strides (over
// gloo they are contiguous); an operation on a group of one rank does the obvious local thing. All ranks of
// the group must make the same calls in the same order with the same shapes and dtypes. Asynchronous forms
// are on Group::backend() (c10d::Work).
//
// What holds for all of them:
// - The engines native and hierarchical throw a MismatchError on every rank where ranks disagree on the
//   operation, the size or the dtype; a PeerLostError where a rank that the operation needs is gone; a
//   TimeoutError where the operation is not done at the deadline, with the ranks that had not come. The
//   deadline is InitOptions::timeout, or what Group::backend()->setTimeout() says. Such an error of a
//   collective is final: every later call on the group throws too. Other groups go on.
// - mpi throws a TimeoutError at the deadline; gloo and nccl throw exceptions of libtorch, which are no
//   rondo::Error. Where ranks disagree, these three promise nothing.
// - A `root`, `destination` or `source` that is not from 0 to the group's size - 1 is a UsageError before
//   anything is sent. So is a call on a rank that is not a member of the group and, over native, one after
//   Context::shutdown().
namespace rondo {

// SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR, BXOR. AVG of whole numbers, which divides towards zero, and of
// truth values (true where all are) is there over native only; other engines throw.
using ReduceOp = c10d::ReduceOp::RedOpType;

// In place: every rank ends with the reduction of all ranks' tensors.
void all_reduce(at::Tensor& tensor, const Group& group, ReduceOp op = ReduceOp::SUM);
// In place: every rank ends with the tensor of `root` (a group rank).
void broadcast(at::Tensor& tensor, const Group& group, int root = 0);
// In place at `root`; other ranks' tensors are unchanged.
void reduce(at::Tensor& tensor, const Group& group, int root = 0, ReduceOp op = ReduceOp::SUM);
// The ranks' tensors, in rank order; all of one shape.
std::vector<at::Tensor> all_gather(const at::Tensor& tensor, const Group& group);
// At `root` the ranks' tensors in rank order, elsewhere empty.
std::vector<at::Tensor> gather(const at::Tensor& tensor, const Group& group, int root = 0);
// `tensors` at `root` has one tensor a rank, elsewhere it is ignored; the one for this rank lands in
// `output`.
void scatter(at::Tensor& output, const std::vector<at::Tensor>& tensors, const Group& group, int root = 0);
// The first dimension is divided evenly by the group's size; each rank gets its reduced part. Throws
// UsageError for a tensor without a dimension, and for a first dimension that does not divide by the size.
at::Tensor reduce_scatter(const at::Tensor& tensor, const Group& group, ReduceOp op = ReduceOp::SUM);
// inputs[i] goes to rank i; result[i] came from rank i. inputs[i] may have another shape for every i; the
// shape sent by rank i to this rank must be that of outputs[i]. Throws UsageError unless `inputs` and
// `outputs` have one tensor for each rank of the group.
void all_to_all(std::vector<at::Tensor>& outputs, const std::vector<at::Tensor>& inputs, const Group& group);
// The first dimension of `input` is cut into input_rows[i] rows for rank i; output_rows[i] rows of `output`,
// contiguous and of the same shape besides, came from rank i. Any of them may be 0. Over an engine without
// the operation (EngineTraits::all_to_all) everybody broadcasts, and keeps what is his. PyTorch's
// all_to_all_single. Throws UsageError unless both lists have one number for each rank, and add up to the
// first dimensions of `input` and `output`.
void all_to_all_single(at::Tensor& output, const at::Tensor& input,
                       const std::vector<std::int64_t>& output_rows,
                       const std::vector<std::int64_t>& input_rows, const Group& group);
// Blocking. `destination` is a group rank, which calls recv() with the same tag, shape and dtype. A tag is
// from 0 to 32767. send() may return before the receiver has the message: over native up to 128 KiB of it
// wait in shared memory. Where the receiver has not taken the rest at the deadline: TimeoutError.
void send(const at::Tensor& tensor, const Group& group, int destination, int tag = 0);
// Blocking. Fills `tensor` with what the group rank `source` sends with this tag; messages of one tag arrive
// in the order sent. Where it has not come at the deadline: TimeoutError. Over native, where it has another
// size or dtype than `tensor`: MismatchError.
void recv(at::Tensor& tensor, const Group& group, int source, int tag = 0);
// Returns when all ranks of the group have called it.
void barrier(const Group& group);

// Objects: anything JSON can hold, of any size, different on every rank.
nlohmann::json broadcast_object(const nlohmann::json& object, const Group& group, int root = 0);
// The objects of all ranks, in rank order.
std::vector<nlohmann::json> all_gather_object(const nlohmann::json& object, const Group& group);
// At `root` all ranks' objects, elsewhere empty.
std::vector<nlohmann::json> gather_object(const nlohmann::json& object, const Group& group, int root = 0);

}  // namespace rondo
