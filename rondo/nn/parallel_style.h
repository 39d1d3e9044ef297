#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "rondo/backend/group.h"
#include "rondo/nn/shard.h"

namespace rondo {

// Division of a layer among the ranks of a group.
enum class ParallelStyle {
  column,           // a linear layer by outputs: every rank has a part of them
  gathered_column,  // as column, with gathered outputs: every rank has all
  row,              // a linear layer by inputs: every rank has a part; outputs are summed over ranks
  vocabulary,       // an embedding by tokens; a linear layer by outputs that are the model's logits
  heads,            // attention by heads
  sequence          // a whole layer on every rank that sees a part of the sequence
};

// Returns "column", "gathered_column", ...
std::string to_text(ParallelStyle style);
// Throws UsageError for any other text, listing the valid ones; `what` names the source of the text.
ParallelStyle parse_parallel_style(const std::string& text, const std::string& what);

// Rules that map layers to styles. The first rule whose pattern matches a module's path applies.
struct ParallelRules {
  // A pattern and its style.
  struct Rule {
    // Pattern for the path of a module, or of a parameter that no divided layer owns: "*" matches any text,
    // including dots.
    std::string pattern;
    ParallelStyle style;  // division of the matching layers
  };
  std::vector<Rule> rules = {};  // in the order of matching
  // Sequence parallelism: between divided layers the sequence, dimension 1 of [samples, length, width], is
  // divided. Column layers gather it first; row layers and vocabulary embeddings return a part of it on every
  // rank.
  bool sequence = false;
  // The model's first output has a part of the classes on every rank although no linear layer has style
  // vocabulary: an embedding that is also the output layer.
  bool divided_outputs = false;
};

// Context in which parallelize() divides layers: the ranks, whether the sequence is divided, and a record of
// the parameters that were cut.
class Division {
 public:
  // An empty group divides nothing.
  Division(Group group, bool sequence) : group_(std::move(group)), sequence_(sequence) {}

  const Group& group() const { return group_; }  // the ranks
  bool sequence() const { return sequence_; }    // whether ranks divide the sequence between layers
  // Returns a rank's share of `whole`. Throws UsageError if the number of ranks does not divide it: "`what`
  // has 6 heads, which 4 ranks do not divide".
  std::int64_t share(std::int64_t whole, const std::string& what, const std::string& things) const;
  // Replaces `parameter` by this rank's part along `dimension`. With `blocks`, the first dimension has that
  // many equal blocks and each is divided. Throws as share() does.
  void cut(at::Tensor& parameter, std::int64_t dimension, const std::string& what, std::int64_t blocks = 1);

  // Declares that the model's first output has a part of the classes on every rank.
  void divide_outputs() { divided_outputs_ = true; }
  bool divided_outputs() const { return divided_outputs_; }  // whether divide_outputs() was called
  // Returns the parameter's address in the full one; null if it is whole on every rank.
  const Shard* find(const at::Tensor& parameter) const;

 private:
  Group group_;
  bool sequence_;
  bool divided_outputs_ = false;
  std::vector<std::pair<at::Tensor, Shard>> cuts_;  // addresses have empty names here
};

// A layer that can be divided. It holds full parameters before divide() and computes with this rank's part
// afterwards.
class ParallelLayer {
 public:
  virtual ~ParallelLayer() = default;
  // Divides the layer. `path` is the layer's, for errors. Throws UsageError for an unsupported style, and for
  // sizes that the number of ranks does not divide.
  virtual void divide(ParallelStyle style, Division& division, const std::string& path) = 0;
};

// A model that provides its own rules.
class ParallelModel {
 public:
  virtual ~ParallelModel() = default;
  // Returns the rules with or without sequence parallelism. Throws UsageError if the model does not support
  // it.
  virtual ParallelRules parallel_rules(bool sequence) const = 0;
};

}  // namespace rondo
