#pragma once

#include "tests/parallel/loop_mistakes/program.h"

namespace rondo::testing::loop_mistakes {

// Several backward passes in a step, and gradients left over from another step.
inline std::vector<Mistake> mistakes_of_passes() {
  const auto two_losses = [](Alone& a) {
    each_step([&](int step) {
      a.optimizer->zero_grad();
      a.backward(step);
      a.backward(step + 1);
      a.optimizer->step();
    });
  };
  return {
      {"two backward passes after one begin_step()",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           p.backward(step + 1);
           p.finish();
           p.update();
         });
       },
       two_losses},
      {"two forward passes, then two backward passes",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           const at::Tensor first = p.loss(step), second = p.loss(step + 1);
           first.backward();
           second.backward();
           p.finish();
           p.update();
         });
       },
       two_losses},
      {"backward() twice over one graph",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           const at::Tensor loss = p.loss(step);
           loss.backward({}, /*retain_graph=*/true);
           loss.backward();
           p.finish();
           p.update();
         });
       },
       [](Alone& a) {
         each_step([&](int step) {
           a.optimizer->zero_grad();
           (2 * a.loss(step)).backward();
           a.optimizer->step();
         });
       }},
      {"a window of passes that all synchronise",
       {"synchronise"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           for (const int pass : {step, step + 1}) {
             p.begin();
             p.backward(pass);
           }
           p.finish();
           p.update();
         });
       },
       two_losses},
      {"a window of passes of which none synchronises",
       {"synchronise"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) { p.step(step, kLocal); });
       }},
      {"the same, and optimizer.step()",
       {"synchronise"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin(kLocal);
           p.backward(step);
           p.optimizer->step();
         });
       },
       nullptr,
       // Shards have no gradients then, so this cannot be distinguished from a long window.
       [](const Program& p) { return !p.shards() && !p.between_hosts; }},
      {"finish_backward() after every pass of a window",
       {"finish_backward()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin(kLocal);
           p.backward(step);
           p.finish();
           p.begin();
           p.backward(step + 1);
           p.finish();
           p.update();
         });
       },
       two_losses},
      {"two whole passes and one step()",
       {"step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           for (const int pass : {step, step + 1}) {
             p.begin();
             p.backward(pass);
             p.finish();
           }
           p.update();
         });
       },
       two_losses},
      {"two whole passes and one step(), where nobody reads gradients",
       {"step(optimizer)"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           for (const int pass : {step, step + 1}) {
             p.begin(kUnread);
             p.backward(pass);
             p.finish();
           }
           p.update();
         });
       },
       two_losses},
      {"losses of a window in one backward pass",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin(kLocal);
           const at::Tensor first = p.loss(step);
           p.begin();
           (first + p.loss(step + 1)).backward();
           p.finish();
           p.update();
         });
       },
       two_losses},
      {"zero_grad() after begin_step()",
       {"zero_grad()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.begin();
           p.optimizer->zero_grad();
           p.backward(step);
           p.finish();
           p.update();
         });
       },
       right_steps},
      {"zero_grad() between finish_backward() and step()",
       {"zero_grad()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.begin();
           p.backward(step);
           p.finish();
           p.optimizer->zero_grad();
           p.update();
         });
       },
       does_nothing},
      {"gradients cleared by the model in place of the optimizer",
       {"zero_grad()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.model->zero_grad();
           p.begin();
           p.backward(step);
           p.finish();
           p.update();
         });
       },
       right_steps},
      {"gradients cleared by the model, after begin_step()",
       {"zero_grad()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.begin();
           p.model->zero_grad();
           p.backward(step);
           p.finish();
           p.update();
         });
       },
       right_steps},
      {"LocalBatch::samples below zero",
       {"samples"},
       [](Program& p) {
         p.prepare();
         p.prepared->begin_step({.samples = -1});
       }},
      {"LocalBatch::samples of no sample on all ranks",
       {"samples"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.prepared->begin_step({.samples = 0});
           p.backward(step);
           p.finish();
           p.update();
         });
       },
       does_nothing},
      {"LocalBatch::samples of a pass in place of the window",
       {"samples"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin(kLocal);
           p.backward(step);
           p.prepared->begin_step({.samples = 1});
           p.backward(step + 1);
           p.finish();
           p.update();
         });
       },
       two_losses},
  };
}

}  // namespace rondo::testing::loop_mistakes
