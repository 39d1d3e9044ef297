#pragma once

#include "rondo/precision/grad_scaler.h"
#include "tests/parallel/loop_mistakes/program.h"

namespace rondo::testing::loop_mistakes {

inline std::vector<at::Tensor> half(const std::vector<at::Tensor>& parameters, bool second) {
  std::vector<at::Tensor> trained;
  for (const at::Tensor& parameter : parameters) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  const auto middle = trained.begin() + static_cast<std::ptrdiff_t>(trained.size() / 2);
  return second ? std::vector<at::Tensor>(middle, trained.end())
                : std::vector<at::Tensor>(trained.begin(), middle);
}

// Optimizers of the wrong parameters, and steps that bypass the strategy.
inline std::vector<Mistake> mistakes_of_optimizers() {
  return {
      {"an optimizer of the model's own parameters",
       {"prepared->module().parameters()"},
       [](Program& p) {
         p.prepare();
         p.optimizer = make_sgd(p.model->parameters());
         each_step([&](int step) { p.step(step); });
       },
       right_steps},
      {"an optimizer made before prepare()",
       {"prepared->module().parameters()"},
       [](Program& p) {
         const SharedOptimizer early = make_sgd(p.model->parameters());
         p.prepare();
         p.optimizer = early;
         each_step([&](int step) { p.step(step); });
       },
       right_steps},
      {"an optimizer of the model's own parameters and its own step()",
       {"prepared->module().parameters()"},
       [](Program& p) {
         p.prepare();
         p.optimizer = make_sgd(p.model->parameters());
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           p.finish();
           p.optimizer->step();
         });
       },
       right_steps},
      {"the same, where nobody reads gradients",
       {"prepared->module().parameters()", "prepared->step(optimizer)"},
       [](Program& p) {
         p.prepare();
         p.optimizer = make_sgd(p.model->parameters());
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin(kUnread);
           p.backward(step);
           p.finish();
           p.optimizer->step();
         });
       },
       right_steps},
      {"optimizer.step() in place of prepared->step(optimizer)",
       {"prepared->step(optimizer)"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           p.finish();
           p.optimizer->step();
         });
       },
       right_steps},
      {"optimizer.step() in the last step alone",
       {"prepared->step(optimizer)"},
       [](Program& p) {
         p.prepare();
         p.step(0);
         p.step(1);
         p.optimizer->zero_grad();
         p.begin();
         p.backward(2);
         p.finish();
         p.optimizer->step();
       },
       right_steps},
      {"optimizer.step(), where nobody reads gradients",
       {"prepared->step(optimizer)"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin(kUnread);
           p.backward(step);
           p.finish();
           p.optimizer->step();
         });
       },
       right_steps},
      {"GradScaler::step(optimizer)",
       {"prepared->step(optimizer)"},
       [](Program& p) {
         p.prepare();
         GradScaler scaler({}, p.context.world());
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           scaler.scale(p.loss(step)).backward();
           p.finish();
           scaler.step(*p.optimizer);
           scaler.update();
         });
       },
       right_steps},
      {"GradScaler::step(optimizer) with the strategy's step",
       {},
       [](Program& p) {
         p.prepare();
         GradScaler scaler({}, p.context.world());
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           scaler.scale(p.loss(step)).backward();
           p.finish();
           scaler.step(*p.optimizer, [&] { p.update(); });
           scaler.update();
         });
       },
       right_steps},
      {"step() twice with one optimizer",
       {"step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.step(step);
           p.update();
         });
       },
       [](Alone& a) {
         each_step([&](int step) {
           a.step(step);
           a.optimizer->step();
         });
       }},
      {"step() twice, where nobody reads gradients",
       {"step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.step(step, kUnread);
           p.update();
         });
       },
       [](Alone& a) {
         each_step([&](int step) {
           a.step(step);
           a.optimizer->step();
         });
       }},
      {"two optimizers for the halves of the model",
       {"step()"},
       [](Program& p) {
         p.prepare();
         const auto parameters = p.prepared->module().parameters();
         const auto first = make_sgd(half(parameters, false)), second = make_sgd(half(parameters, true));
         each_step([&](int step) {
           first->zero_grad();
           second->zero_grad();
           p.begin();
           p.backward(step);
           p.finish();
           p.prepared->step(*first);
           p.prepared->step(*second);
         });
       },
       right_steps},
      {"two optimizers, where nobody reads gradients",
       {"step()"},
       [](Program& p) {
         p.prepare();
         const auto parameters = p.prepared->module().parameters();
         const auto first = make_sgd(half(parameters, false)), second = make_sgd(half(parameters, true));
         each_step([&](int step) {
           first->zero_grad();
           second->zero_grad();
           p.begin(kUnread);
           p.backward(step);
           p.finish();
           p.prepared->step(*first);
           p.prepared->step(*second);
         });
       },
       right_steps},
      {"the optimizer of another model",
       {"prepared->module().parameters()", "finish_backward()", "step()"},
       [](Program& p) {
         p.prepare();
         LoopNet other;
         const auto strategy = p.make()(p.name);
         const auto prepared = strategy->prepare(other.ptr());
         const SharedOptimizer of_other = make_sgd(prepared->module().parameters());
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           p.finish();
           p.prepared->step(*of_other);
         });
       },
       // Its parameters have no gradients, so one process trains nothing, and this model's gradients are
       // cleared.
       does_nothing},
      {"the optimizer of a prepared model that was destroyed",
       {"prepared->module().parameters()"},
       [](Program& p) {
         p.prepare();
         const SharedOptimizer old = p.optimizer;
         p.prepared->unshard();
         p.meet();
         p.prepared.reset();
         p.prepare();
         p.optimizer = old;
         each_step([&](int step) { p.step(step); });
       },
       right_steps},
      {"an optimizer of a model that was never prepared",
       {"prepared->module().parameters()", "step()"},
       [](Program& p) {
         const auto alone = make_sgd(LoopNet()->parameters());
         p.prepare();
         p.optimizer->zero_grad();
         p.begin();
         p.backward(0);
         p.finish();
         p.prepared->step(*alone);
       },
       does_nothing},
      {"step() of rank 0 alone",
       {"step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           p.finish();
           if (p.context.rank() == 0) p.update();
         });
       },
       nullptr,
       [](const Program& p) { return !p.shards(); }},
  };
}

}  // namespace rondo::testing::loop_mistakes
