#pragma once

#include <torch/serialize.h>

#include <sstream>

#include "rondo/backend/collectives.h"
#include "rondo/parallel/ddp/ddp.h"
#include "rondo/strategy/summon_full_params.h"
#include "tests/parallel/loop_mistakes/program.h"

namespace rondo::testing::loop_mistakes {

inline double sum_of(const std::vector<at::Tensor>& parameters) {
  const at::NoGradGuard no_grad;
  double sum = 0;
  for (const at::Tensor& parameter : parameters) sum += parameter.sum().item<double>();
  return sum;
}

// The model is read or changed between steps, prepared twice, or unfrozen.
inline std::vector<Mistake> mistakes_of_models() {
  const auto seen_between_steps = [](const std::function<void(Program&, int)>& look) {
    return [look](Program& p) {
      p.prepare();
      each_step([&](int step) {
        p.step(step);
        p.meet();
        look(p, step);
        p.meet();
      });
    };
  };
  const auto losses = [](Alone& a) {
    each_step([&](int step) {
      a.step(step);
      a.see_loss(step);
    });
  };
  const auto sums = [](Alone& a) {
    each_step([&](int step) {
      a.step(step);
      a.seen.push_back(sum_of(a.model->parameters()));
    });
  };
  const auto doubled = [](Alone& a) {
    a.step(0);
    {
      const at::NoGradGuard no_grad;
      for (at::Tensor parameter : a.model->parameters()) parameter.mul_(2);
    }
    a.step(1);
  };
  return {
      {"an evaluation between steps without unshard()",
       {"unshard()"},
       seen_between_steps([](Program& p, int step) { p.see_loss(step); }),
       losses},
      {"the same, where nobody reads gradients",
       {"unshard()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.step(step, kUnread);
           p.meet();
           p.see_loss(step);
           p.meet();
         });
       },
       losses},
      {"an evaluation on rank 0 alone without unshard()",
       {"unshard()", "rank 0"},
       seen_between_steps([](Program& p, int step) {
         if (p.context.rank() == 0) p.see_loss(step);
       }),
       losses},
      {"an evaluation before the first step",
       {"unshard()"},
       [](Program& p) {
         p.prepare();
         p.meet();
         p.see_loss(0);
         p.meet();
         p.step(0);
       },
       [](Alone& a) {
         a.see_loss(0);
         a.step(0);
       }},
      {"an evaluation between finish_backward() and step()",
       {"unshard()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) {
           p.optimizer->zero_grad();
           p.begin(kUnread);
           p.backward(step);
           p.finish();
           p.prepared->unshard();
           p.see_loss(step);
           p.meet();
           p.update();
         });
       },
       [](Alone& a) {
         each_step([&](int step) {
           a.see_loss(step);
           a.step(step);
         });
       }},
      {"the model saved without unshard()",
       {"unshard()"},
       seen_between_steps([](Program& p, int) {
         std::stringstream file;
         torch::save(p.model, file);
         LoopNet read;
         torch::load(read, file);
         p.seen.push_back(sum_of(read->parameters()));
       }),
       sums},
      {"an average over the model's parameters without unshard()",
       {"unshard()"},
       seen_between_steps([](Program& p, int) { p.seen.push_back(sum_of(p.model->parameters())); }),
       sums},
      {"the model read after its prepared model is gone",
       {"unshard()"},
       [](Program& p) {
         p.prepare();
         each_step([&](int step) { p.step(step); });
         p.meet();
         p.prepared.reset();
         p.seen.push_back(sum_of(p.model->parameters()));
         p.meet();
       },
       [](Alone& a) {
         right_steps(a);
         a.seen.push_back(sum_of(a.model->parameters()));
       }},
      {"weights changed without write_back()",
       {"write_back()"},
       [](Program& p) {
         p.prepare();
         p.step(0);
         {
           const SummonFullParams full(*p.prepared);
           p.meet();
           const at::NoGradGuard no_grad;
           const bool changes = p.between_hosts || !p.shards() || p.context.rank() == 0;
           for (at::Tensor parameter : p.model->parameters())
             if (changes) parameter.mul_(2);
           p.meet();
         }
         p.step(1);
       },
       doubled},
      {"weights changed without unshard()",
       {"unshard()"},
       [](Program& p) {
         p.prepare();
         p.step(0);
         p.meet();
         {
           const at::NoGradGuard no_grad;
           const bool changes = p.between_hosts || !p.shards() || p.context.rank() == 0;
           for (at::Tensor parameter : p.model->parameters())
             if (changes) parameter.mul_(2);
         }
         p.meet();
         p.step(1);
       },
       doubled},
      {"weights loaded by torch::load after prepare()",
       {"load_full_state_dict()", "unshard()"},
       [](Program& p) {
         LoopNet trained;
         fill_parameters(*trained, 77);
         std::stringstream file;
         torch::save(trained, file);
         p.prepare();
         torch::load(p.model, file);
         each_step([&](int step) { p.step(step); });
       },
       [](Alone& a) {
         fill_parameters(*a.model, 77);
         right_steps(a);
       }},
      {"the model converted after prepare()",
       {"prepare()", "convert", "unshard()"},
       [](Program& p) {
         p.prepare();
         p.model->to(at::kFloat);
         p.begin();
         p.model(at::ones({2, 6})).sum().backward();
         p.finish();
         p.update();
       }},
      {"a parameter thawed after prepare()",
       {"requires_grad"},
       [](Program& p) {
         p.prepare();
         p.step(0);
         p.model->frozen->weight.set_requires_grad(true);
         p.step(1);
         p.step(2);
       }},
      {"a parameter thawed where the optimizer has it",
       {"requires_grad"},
       [](Program& p) {
         p.prepare();
         for (const at::Tensor& parameter : p.prepared->module().parameters())
           parameter.set_requires_grad(true);
         p.optimizer = make_sgd(p.prepared->module().parameters());
         p.step(0);
       }},
      {"a parameter thawed, and the model prepared again",
       {"prepare()"},
       [](Program& p) {
         p.prepare();
         p.step(0);
         p.prepared->unshard();
         p.meet();
         p.prepared.reset();
         p.model->frozen->weight.set_requires_grad(true);
         p.prepare();
         p.step(1);
       },
       [](Alone& a) {
         a.step(0);
         a.model->frozen->weight.set_requires_grad(true);
         a.optimizer = make_sgd(a.model->parameters());
         a.step(1);
       }},
      {"a parameter frozen after prepare()",
       {"find_unused_parameters"},
       [](Program& p) {
         p.prepare();
         p.step(0);
         p.model->output->bias.set_requires_grad(false);
         p.step(1);
       }},
      {"prepare() twice",
       {"prepare()"},
       [](Program& p) {
         p.prepare();
         const auto first = std::move(p.prepared);
         p.prepare();
         each_step([&](int step) { p.step(step); });
       }},
      {"prepare() twice, the first result used",
       {"prepare()"},
       [](Program& p) {
         p.prepare();
         const auto second = p.strategy->prepare(p.model.ptr());
         each_step([&](int step) { p.step(step); });
       }},
      {"prepare() by two strategies",
       {"prepare()"},
       [](Program& p) {
         const auto other = p.make()("zero2");
         const auto prepared = other->prepare(p.model.ptr());
         p.prepare();
       }},
      {"prepare() of a model of DistributedDataParallel",
       {"prepare()"},
       [](Program& p) {
         const DistributedDataParallel ddp(*p.model, p.context.world());
         p.prepare();
       }},
  };
}

}  // namespace rondo::testing::loop_mistakes
