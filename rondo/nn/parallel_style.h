#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/shard.h"

namespace rondo {

// How a layer is divided among the ranks of a group.
enum class ParallelStyle {
  column,           // a linear layer by outputs: every rank has some of them
  gathered_column,  // the same, and the outputs are gathered: every rank has all
  row,              // a linear layer by inputs, of which every rank has some; outputs are summed over ranks
  vocabulary,       // an embedding by tokens; a linear layer by outputs that are the model's (its logits)
  heads,            // attention by heads
  sequence          // the layer is whole on every rank, and sees a part of the sequence
};

// "column", "gathered_column", ...
std::string to_text(ParallelStyle style);
// Throws UsageError for another text, naming those that there are; `what` says where it stands.
ParallelStyle parse_parallel_style(const std::string& text, const std::string& what);

// Which layers are divided, and how. The first rule whose pattern fits a module's path counts.
struct ParallelRules {
  // A pattern and what it stands for.
  struct Rule {
    // Of the path of a module, or of a parameter to be cut where no layer does it: "*" is any text, dots too.
    std::string pattern;
    ParallelStyle style;  // how what fits is divided
  };
  std::vector<Rule> rules = {};  // in the order in which they are tried
  // Between divided layers the sequence, dimension 1 of [samples, length, width], is divided (sequence
  // parallelism): column gathers it before, row and vocabulary embeddings leave a part of it to every rank.
  bool sequence = false;
  // The model's first output has a part of the classes on every rank, though no linear layer says so: an
  // embedding that is the output layer, too.
  bool divided_outputs = false;
};

// What parallelize() asks of a layer: the ranks, whether the sequence is divided, and where to tell which
// parameters are cut.
class Division {
 public:
  // An empty handle of a group divides nothing.
  Division(Group group, bool sequence) : group_(std::move(group)), sequence_(sequence) {}

  const Group& group() const { return group_; }  // the ranks
  bool sequence() const { return sequence_; }    // whether they divide the sequence between layers
  // How much of `whole` things a rank has. Throws UsageError for a number that the ranks do not divide:
  // "`what` has 6 heads, which 4 ranks do not divide".
  std::int64_t share(std::int64_t whole, const std::string& what, const std::string& things) const;
  // Makes `parameter` this rank's part along `dimension`, of each of `blocks` equal blocks of the first one.
  // Throws as share() does.
  void cut(at::Tensor& parameter, std::int64_t dimension, const std::string& what, std::int64_t blocks = 1);

  // The model's first output has a part of the classes on every rank.
  void divide_outputs() { divided_outputs_ = true; }
  bool divided_outputs() const { return divided_outputs_; }  // whether it was said
  // Of the parameter: its address in the full one; null where it is whole on every rank.
  const Shard* find(const at::Tensor& parameter) const;

 private:
  Group group_;
  bool sequence_;
  bool divided_outputs_ = false;
  std::vector<std::pair<at::Tensor, Shard>> cuts_;  // addresses have no name here
};

// A layer that can be divided. Its parameters stand whole in it when it is asked; afterwards it computes with
// this rank's part of them.
class ParallelLayer {
 public:
  virtual ~ParallelLayer() = default;
  // `path` is the layer's, for errors. Throws UsageError for a style that it has not, and for sizes that the
  // ranks do not divide.
  virtual void divide(ParallelStyle style, Division& division, const std::string& path) = 0;
};

// A model that knows how it is divided.
class ParallelModel {
 public:
  virtual ~ParallelModel() = default;
  // With or without sequence parallelism. Throws UsageError where it has no such form.
  virtual ParallelRules parallel_rules(bool sequence) const = 0;
};

}  // namespace rondo
