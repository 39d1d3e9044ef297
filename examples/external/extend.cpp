// One extension of each kind that a program can add to rondo without changing its sources: an engine, a
// collective algorithm with its channel, a communication hook, a strategy with an option, a data set, a
// model, an optimizer and a callback.
//   rondo run -n 2 ./extend
#include <rondo/extend/algorithm.h>
#include <rondo/extend/codec.h>
#include <rondo/extend/engine.h>
#include <rondo/extend/strategy.h>
#include <rondo/rondo.h>
#include <torch/torch.h>
#include <cstdio>
#include <exception>

// An engine: the native one with a message. A full engine derives from c10d::Backend.
c10::intrusive_ptr<c10d::Backend> make_announced(const rondo::BackendRequest& request) {
  if (request.rank == 0) std::printf("engine: communicator '%s'\n", request.group_name.c_str());
  return request.make("native", request).backend;
}

// An algorithm: every rank sends all of its data to all others, and reduces.
namespace everyone {

rondo::collective::Schedule schedule(const rondo::collective::ScheduleRequest& request) {
  rondo::collective::ScheduleBuilder builder(request, "everyone");
  std::vector<rondo::collective::Range> values;
  for (int peer = 0; peer < request.world; ++peer) {
    if (peer == request.rank) {
      values.push_back(builder.data());
      continue;
    }
    const rondo::collective::Range theirs = builder.scratch(request.bytes.count);
    builder.send(0, peer, builder.data());
    builder.recv(0, peer, theirs);
    values.push_back(theirs);
  }
  builder.reduce(0, builder.data(), values);
  return builder.finish(/*rounds=*/1);
}

}  // namespace everyone

// A channel: messages through a group's engine.
class GroupChannel final : public rondo::Channel {
 public:
  explicit GroupChannel(rondo::Group group) : group_(std::move(group)) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  void exchange(std::span<const rondo::Outgoing> outgoing, std::span<const rondo::Incoming> incoming,
                const rondo::Wait&) override {
    std::vector<c10::intrusive_ptr<c10d::Work>> works;
    std::vector<std::vector<torch::Tensor>> received;
    for (const rondo::Incoming& message : incoming) {
      received.push_back({torch::empty({static_cast<std::int64_t>(message.size)}, torch::kByte)});
      works.push_back(group_.backend()->recv(received.back(), message.peer, message.tag));
    }
    for (const rondo::Outgoing& message : outgoing) {
      std::vector<torch::Tensor> bytes = {torch::from_blob(const_cast<std::byte*>(message.bytes.data()),
                                                           {static_cast<std::int64_t>(message.bytes.size())},
                                                           torch::kByte)};
      works.push_back(group_.backend()->send(bytes, message.peer, message.tag));
    }
    for (const auto& work : works) work->wait();
    for (std::size_t i = 0; i < incoming.size(); ++i) {
      const torch::Tensor& bytes = received[i][0];
      incoming[i].take({static_cast<const std::byte*>(bytes.const_data_ptr()), bytes.nbytes()}, /*offset=*/0);
    }
  }

 private:
  rondo::Group group_;
};

void run_algorithm(const rondo::Context& context) {
  torch::Tensor values = torch::full({6}, context.rank() + 1.0F);
  const rondo::collective::ScheduleRequest request{
      .rank = context.rank(), .world = context.world_size(), .bytes = rondo::Bytes{values.nbytes()}};
  GroupChannel channel(context.new_group(context.world().ranks()));
  rondo::collective::execute(everyone::schedule(request), channel,
                             {static_cast<std::byte*>(values.data_ptr()), values.nbytes()},
                             rondo::DType::float32, rondo::Reduction::sum, {});
  if (context.rank() == 0) std::printf("algorithm: sum %g\n", values[0].item<double>());
}

// A communication hook: averages in float16.
rondo::CommHook halved(const rondo::Group& group) {
  return {
      "halved", [group](rondo::GradBucket& bucket) {
        const torch::Tensor buffer = bucket.buffer();
        return rondo::start_average(group, buffer.to(torch::kHalf)).then([buffer](const torch::Tensor& mean) {
          return buffer.copy_(mean);
        });
      }};
}

void run_hook(const rondo::Context& context) {
  torch::nn::Linear model(4, 1);
  rondo::DistributedDataParallel ddp(*model, context.world());
  ddp.register_comm_hook(halved(context.world()));
  ddp.forward(model, torch::full({1, 4}, context.rank() + 1.0F)).sum().backward();
  if (context.rank() == 0) std::printf("hook: gradient %g\n", model->weight.grad()[0][0].item<double>());
}

// A strategy with an option: ddp that compares the ranks' parameters periodically.
struct CheckedOptions {
  int every = 10;
};

void add_checked(rondo::StrategyRegistry& strategies) {
  rondo::OptionsOf<CheckedOptions> options;
  options.add("check-every", &CheckedOptions::every, "Steps between two comparisons", rondo::within(1, 1000));
  strategies.add<CheckedOptions>(
      {.name = "checked", .summary = "ddp that compares parameters", .options = options},
      [](const rondo::Context& context, const CheckedOptions& own) {
        rondo::DdpStrategyOptions ddp;
        ddp.check_parameters_every = own.every;
        return rondo::all_strategies().make("ddp", context, ddp);
      });
}

// A data set in torch::data's interface: points, labelled by whether they are inside the circle.
class Circle : public torch::data::Dataset<Circle> {
 public:
  torch::data::Example<> get(std::size_t index) override {
    const torch::Tensor point = torch::rand({2}, at::detail::createCPUGenerator(index)) * 2 - 1;
    return {point, (point.square().sum() < 0.6).to(torch::kLong)};
  }
  std::optional<std::size_t> size() const override { return 512; }
};

// A model.
struct Net : torch::nn::Module {
  Net() {
    register_module("hidden", hidden);
    register_module("output", output);
  }
  torch::Tensor forward(const torch::Tensor& points) {
    return output->forward(torch::tanh(hidden->forward(points)));
  }
  torch::nn::Linear hidden{2, 16}, output{16, 2};
};

// An optimizer: steps of equal size against the gradient's sign.
struct SignOptions : torch::optim::OptimizerCloneableOptions<SignOptions> {
  double rate = 0.01;
  double get_lr() const override { return rate; }
  void set_lr(const double lr) override { rate = lr; }
};

class SignDescent final : public torch::optim::Optimizer {
 public:
  explicit SignDescent(std::vector<torch::Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<SignOptions>()) {}

  torch::Tensor step(LossClosure closure = nullptr) override {
    const torch::Tensor loss = closure ? closure() : torch::Tensor();
    const torch::NoGradGuard no_gradients;
    for (torch::optim::OptimizerParamGroup& group : param_groups()) {
      for (torch::Tensor& parameter : group.params()) {
        if (parameter.grad().defined()) parameter.sub_(parameter.grad().sign(), group.options().get_lr());
      }
    }
    return loss;
  }
};

// A callback: prints the length of the training.
class Announce final : public rondo::Callback {
 public:
  explicit Announce(bool speaks) : speaks_(speaks) {}
  std::string name() const override { return "announce"; }
  void on_train_begin(rondo::Trainer&, const rondo::FitOutline& outline) override {
    if (speaks_) std::printf("callback: %d steps\n", static_cast<int>(outline.total_steps));
  }

 private:
  bool speaks_;
};

void train(const rondo::Context& context) {
  rondo::StrategyRegistry strategies = rondo::all_strategies();
  add_checked(strategies);
  const auto strategy = strategies.make("checked", context, {{"check-every", "5"}});
  rondo::Trainer trainer(*strategy, [] {
    torch::manual_seed(1);
    return rondo::as_model(std::make_shared<Net>());
  });
  trainer.compile(
      [](torch::nn::Module& module) { return std::make_unique<SignDescent>(module.parameters()); });
  const auto data = rondo::from_torch(Circle(), /*classes=*/2);
  const rondo::FitResult result = trainer.fit(
      data, {.steps = 400, .batch_size = 32, .callbacks = {std::make_shared<Announce>(context.rank() == 0)}});
  if (context.rank() == 0) std::printf("strategy, data set, model and optimizer: loss %.3f\n", *result.loss);
}

int main() {
  try {
    rondo::register_backend("announced", make_announced);
    const rondo::Context context = rondo::init({.backend = "announced"});
    run_algorithm(context);
    run_hook(context);
    train(context);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
