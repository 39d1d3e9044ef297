#pragma once

#include "rondo/models/bert_options.h"
#include "rondo/models/convnet_options.h"
#include "rondo/models/gpt_options.h"
#include "rondo/models/mlp_options.h"

namespace rondo {

// Calls visit(family) for every family of built-in models, one line each. A family is models of one
// architecture that take the same options struct:
//   Options         that struct
//   declarations()  what its models are called and can be told; who uses no more links no libtorch
//   defaults(name)  the complete configuration of one of them
//   make(config)    builds a model (built_model.h)
//   setup(options)  what the options mean for a training (model_setup.h)
template <class Visit>
void for_each_model_family(const Visit& visit) {
  visit(MlpFamily());
  visit(ConvnetFamily());
  visit(BertFamily());
  visit(GptFamily());
}

}  // namespace rondo
