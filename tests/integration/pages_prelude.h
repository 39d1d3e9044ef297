// Declarations that C++ blocks of the documentation use and do not show. A page that needs others declares
// them in a comment "given" before the block. Nothing here is defined: the blocks are compiled, and not
// linked.
#pragma once

#include <torch/torch.h>

#include <rondo/extend/algorithm.h>
#include <rondo/extend/codec.h>
#include <rondo/extend/engine.h>
#include <rondo/extend/model.h>
#include <rondo/extend/options.h>
#include <rondo/extend/strategy.h>
#include <rondo/rondo.h>

#include <cstdio>
#include <iostream>

extern const rondo::Context context;
extern torch::nn::Sequential model;
extern torch::nn::Linear layer;
extern torch::optim::AdamW optimizer;
extern rondo::DistributedDataParallel ddp;
extern decltype(rondo::all_strategies().make("ddp", context)) strategy;
extern decltype(strategy->prepare(model.ptr())) prepared;
extern rondo::Trainer trainer;
extern at::Tensor tensor, table, input, target, loss, x;
extern std::shared_ptr<rondo::Dataset> dataset, train, test, validation, data, training_data, evaluation_data;
extern const std::string unit_name;
extern std::int64_t step;

// A reader of torch::data, and a function of (output, target).
struct Example {
  at::Tensor data, target;
};
extern std::unique_ptr<std::vector<Example>> loader;
at::Tensor loss_function(const at::Tensor& output, const at::Tensor& target);
