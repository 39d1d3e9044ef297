#pragma once

#include <torch/nn/utils/clip_grad.h>

#include "rondo/strategy/clip_grad_norm.h"
#include "tests/parallel/loop_mistakes/program.h"

namespace rondo::testing::loop_mistakes {

// Mistakes in clipping or reading gradients.
inline std::vector<Mistake> mistakes_of_gradients() {
  constexpr double kNorm = 0.05;
  const auto clipped = [](Alone& a) {
    each_step([&](int step) {
      a.optimizer->zero_grad();
      a.backward(step);
      torch::nn::utils::clip_grad_norm_(a.optimizer->param_groups().front().params(), kNorm);
      a.optimizer->step();
    });
  };
  const auto clipped_by = [](const LocalBatch& batch, const std::function<void(Program&)>& clip) {
    return [batch, clip](Program& p) {
      p.prepare();
      each_step([&](int step) {
        p.optimizer->zero_grad();
        p.begin(batch);
        p.backward(step);
        p.finish();
        clip(p);
        p.update();
      });
    };
  };
  return {
      {"rondo::clip_grad_norm_",
       {},
       clipped_by({}, [](Program& p) { clip_grad_norm_(*p.prepared, kNorm); }),
       clipped},
      {"rondo::clip_grad_norm_, where nobody reads gradients",
       {"gradients_are_read"},
       clipped_by(kUnread, [](Program& p) { clip_grad_norm_(*p.prepared, kNorm); }),
       clipped},
      {"torch's clip_grad_norm_ of the model's parameters",
       {"rondo::clip_grad_norm_"},
       clipped_by({}, [](Program& p) { torch::nn::utils::clip_grad_norm_(p.model->parameters(), kNorm); }),
       clipped},
      {"torch's clip_grad_norm_ of the model's parameters, where nobody reads gradients",
       {"rondo::clip_grad_norm_"},
       clipped_by(kUnread,
                  [](Program& p) { torch::nn::utils::clip_grad_norm_(p.model->parameters(), kNorm); }),
       clipped,
       // Between hosts ddp's gradients are not ready yet, because the loop declared that it does not read
       // them.
       [](const Program& p) { return p.shards() || !p.between_hosts; }},
      {"torch's clip_grad_norm_ of this rank's shards",
       {"clip_grad_norm_"},
       clipped_by(
           {},
           [](Program& p) { torch::nn::utils::clip_grad_norm_(p.prepared->module().parameters(), kNorm); }),
       clipped},
      {"clipping before finish_backward()",
       {"finish_backward()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           clip_grad_norm_(*p.prepared, kNorm);
           p.finish();
           p.update();
         });
       },
       clipped},
      {"clipping after step()",
       {"step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.step(step);
           clip_grad_norm_(*p.prepared, kNorm);
         });
       },
       right_steps},
      {"clipping in every pass of a window",
       {"synchronise", "finish_backward()"},
       [](Program& p) {
         p.prepare();
         p.begin(kLocal);
         p.backward(0);
         clip_grad_norm_(*p.prepared, kNorm);
       }},
      {"gradients read from the model's parameters",
       {"prepared->module().parameters()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           p.finish();
           p.seen.push_back(p.model->output->weight.grad().sum().item<double>());
           p.update();
         });
       },
       [](Alone& a) {
         each_step([&](int step) {
           a.optimizer->zero_grad();
           a.backward(step);
           a.seen.push_back(a.model->output->weight.grad().sum().item<double>());
           a.optimizer->step();
         });
       }},
      {"gradients scaled by hand",
       {"finish_backward()"},
       clipped_by({},
                  [](Program& p) {
                    for (const at::Tensor& parameter : p.prepared->module().parameters())
                      if (parameter.grad().defined()) parameter.grad().mul_(0.5);
                  }),
       [](Alone& a) {
         each_step([&](int step) {
           a.optimizer->zero_grad();
           (a.loss(step) / 2).backward();
           a.optimizer->step();
         });
       }},
      {"backward() between finish_backward() and step()",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           p.finish();
           p.backward(step + 1);
           p.update();
         });
       },
       [](Alone& a) {
         each_step([&](int step) {
           a.optimizer->zero_grad();
           a.backward(step);
           a.backward(step + 1);
           a.optimizer->step();
         });
       }},
      {"backward() between steps, on the whole model",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         p.step(0);
         p.prepared->unshard();
         p.backward(1);
       }},
      {"totals() without announce()",
       {"announce()"},
       [](Program& p) {
         p.prepare();
         p.step(0);
         p.seen.push_back(p.prepared->totals().loss);
       }},
      {"announce() before begin_step()",
       {"announce()"},
       [](Program& p) {
         p.prepare();
         p.prepared->announce({.loss = 1});
         p.step(0);
         p.seen.push_back(p.prepared->totals().loss);
       }},
      {"announce() after step()",
       {"announce()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.step(step);
           p.prepared->announce({.loss = 1});
           p.seen.push_back(p.prepared->totals().loss);
         });
       },
       [](Alone& a) {
         right_steps(a);
         a.seen = std::vector<double>(kSteps, 2);
       }},
  };
}

}  // namespace rondo::testing::loop_mistakes
