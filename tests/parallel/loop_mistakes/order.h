#pragma once

#include "tests/parallel/loop_mistakes/program.h"

namespace rondo::testing::loop_mistakes {

// Calls of a step that are missing, repeated or in the wrong order.
inline std::vector<Mistake> mistakes_of_order() {
  return {
      {"finish_backward() forgotten",
       {"finish_backward()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           p.update();
         });
       },
       right_steps},
      {"finish_backward() forgotten, optimizer.step()",
       {"finish_backward()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           p.optimizer->step();
         });
       },
       right_steps},
      {"finish_backward() twice",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         p.begin();
         p.backward(0);
         p.finish();
         p.finish();
       }},
      {"finish_backward() before backward()",
       {"backward()", "begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           const at::Tensor loss = p.loss(step);
           p.finish();
           loss.backward();
           p.update();
         });
       },
       right_steps},
      {"begin_step() forgotten",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.backward(step);
           p.finish();
           p.update();
         });
       }},
      {"begin_step() and finish_backward() forgotten",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.backward(step);
           p.update();
         });
       }},
      {"a loop of one process",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.backward(step);
           p.optimizer->step();
         });
       }},
      {"a loop of one process, gradients cleared by the model",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.model->zero_grad();
           p.backward(step);
           p.optimizer->step();
         });
       }},
      {"begin_step() once, before the loop",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         p.begin();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.backward(step);
           p.finish();
           p.update();
         });
       }},
      {"begin_step() and finish_backward() around the loop",
       {"begin_step()", "finish_backward()"},
       [](Program& p) {
         p.prepare();
         p.begin();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.backward(step);
           p.update();
         });
         p.finish();
       },
       right_steps},
      {"begin_step() after the forward pass",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.meet();
           const at::Tensor loss = p.loss(step);
           p.begin();
           loss.backward();
           p.finish();
           p.update();
         });
       },
       right_steps},
      {"begin_step() after the forward pass, where nobody reads gradients",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.meet();
           const at::Tensor loss = p.loss(step);
           p.begin(kUnread);
           loss.backward();
           p.finish();
           p.update();
         });
       },
       right_steps},
      {"begin_step() after the backward pass",
       {"begin_step()", "backward()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.meet();
           p.backward(step);
           p.begin();
           p.finish();
           p.update();
         });
       }},
      {"begin_step() twice before the forward pass",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.begin();
           p.step(step);
         });
       },
       right_steps},
      {"backward() forgotten",
       {"backward()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.loss(step);
           p.finish();
           p.update();
         });
       },
       does_nothing},
      {"step() forgotten",
       {"step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           p.finish();
         });
       },
       does_nothing},
      {"step() forgotten, where nobody reads gradients",
       {"step(optimizer)"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin(kUnread);
           p.backward(step);
           p.finish();
         });
       },
       does_nothing},
      {"step() before any gradient",
       {"begin_step()"},
       [](Program& p) {
         p.prepare();
         p.update();
         each_step([&](int step) { p.step(step); });
       },
       right_steps},
      {"a step left out, its gradients cleared at the head of the loop",
       {"step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin();
           p.backward(step);
           p.finish();
           if (step != 1) p.update();
         });
       },
       [](Alone& a) {
         a.step(0);
         a.step(2);
       }},
      {"a step left out, its gradients cleared by the model",
       {"step()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.model->zero_grad();
           p.begin();
           p.backward(step);
           p.finish();
           if (step != 1) p.update();
         });
       },
       [](Alone& a) {
         a.step(0);
         a.step(2);
       }},
      {"a forward pass that fails, and the next batch",
       {"finish_backward()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.begin();
           try {
             p.model(at::zeros({2, 7}, at::kDouble));
           } catch (const c10::Error&) {
             p.step(step);
           }
         });
       },
       right_steps},
      {"the last rank does one step less",
       {"rank 1"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           if (p.context.rank() == 1 && step == 2) p.is_over = true;
           if (!p.is_over) p.step(step);
         });
       }},
  };
}

}  // namespace rondo::testing::loop_mistakes
