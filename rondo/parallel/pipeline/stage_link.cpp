#include "rondo/parallel/pipeline/stage_link.h"

#include <torch/types.h>

#include <algorithm>

#include "rondo/backend/collectives.h"
#include "rondo/backend/point_to_point.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"

namespace rondo {
namespace {

constexpr std::int64_t kHeader = 256;     // numbers in a header that describes forms
constexpr std::size_t kMostTensors = 15;  // maximum per message; one more tag is used for the header

}  // namespace

StageLink::StageLink(Group group, int stages, c10::Device device)
    : group_(std::move(group)),
      stages_(stages),
      device_(device),
      in_order_(group_.size() > 1 && matches_by_order(group_, device)) {
  if (!in_order_) return;
  // The engine's first operation must include all ranks, but the first messages involve only two.
  at::Tensor nothing = at::zeros({1}, at::TensorOptions(device));
  all_reduce(nothing, group_);
}

StageLink::Forms StageLink::forms_of(const Tensors& tensors) {
  Forms forms;
  for (const at::Tensor& tensor : tensors)
    forms.push_back({tensor.scalar_type(), tensor.requires_grad(), tensor.sizes().vec()});
  return forms;
}

at::Tensor StageLink::encode(const Forms& forms) {
  std::vector<std::int64_t> numbers = {static_cast<std::int64_t>(forms.size())};
  for (const Form& form : forms) {
    numbers.push_back(static_cast<std::int64_t>(form.dtype));
    numbers.push_back(form.takes_gradient ? 1 : 0);
    numbers.push_back(static_cast<std::int64_t>(form.sizes.size()));
    numbers.insert(numbers.end(), form.sizes.begin(), form.sizes.end());
  }
  if (forms.size() > kMostTensors || numbers.size() > static_cast<std::size_t>(kHeader))
    throw UsageError(str(forms.size(), " tensors pass between two stages, at most ", kMostTensors, " may"));
  numbers.resize(static_cast<std::size_t>(kHeader), 0);
  return at::tensor(numbers, at::kLong);
}

StageLink::Forms StageLink::decode(const at::Tensor& numbers) {
  const std::int64_t* next = numbers.data_ptr<std::int64_t>();
  Forms forms(static_cast<std::size_t>(*next++));
  for (Form& form : forms) {
    form.dtype = static_cast<at::ScalarType>(*next++);
    form.takes_gradient = *next++ != 0;
    form.sizes.resize(static_cast<std::size_t>(*next++));
    for (std::int64_t& size : form.sizes) size = *next++;
  }
  return forms;
}

std::string StageLink::describe(const Forms& forms) {
  std::vector<std::string> texts;
  for (const Form& form : forms)
    texts.push_back(str(c10::toString(form.dtype), " [", join(form.sizes, ", "), "]"));
  return join(texts, ", ");
}

int StageLink::tag(const Key& key, std::size_t part) const {
  const auto [message, stage, micro_batch] = key;
  return ((micro_batch * stages_ + stage) * 2 + static_cast<int>(message)) *
             static_cast<int>(kMostTensors + 1) +
         static_cast<int>(part);
}

void StageLink::start_send(const std::vector<PeerMessage>& messages) {
  // Frees delivered messages before the end of the step.
  std::erase_if(sent_, [](const Sent& sent) {
    return std::all_of(sent.works.begin(), sent.works.end(),
                       [](const auto& work) { return work->isCompleted() && work->isSuccess(); });
  });
  sent_.push_back({messages, start_exchange(group_, messages, {})});
}

void StageLink::send(StageMessage message, int stage, int micro_batch, int to, const Tensors& tensors,
                     const std::string& about) {
  const int receiver = message == StageMessage::activation ? stage + 1 : stage - 1;
  const Key key{message, receiver, micro_batch};
  const Forms forms = forms_of(tensors);
  const auto [agreed, is_new] = agreed_.try_emplace({message, receiver, about}, forms);
  if (is_new) start_send({{encode(forms), to, tag(key, 0)}});
  if (agreed->second != forms) {
    throw UsageError(str("stage ", stage, " gives stage ", receiver, " ", describe(forms),
                         " for micro-batch ", micro_batch, ", where it gave ", describe(agreed->second),
                         " for another one of the same input; what passes between stages keeps its shape"));
  }
  std::vector<PeerMessage> messages;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    messages.push_back({tensors[i].detach().contiguous(), to, tag(key, i + 1)});
  start_send(messages);
}

void StageLink::expect(StageMessage message, int stage, int micro_batch, int from, const std::string& about) {
  const Key key{message, stage, micro_batch};
  Expected& expected = expected_[key];
  expected = {.from = from, .about = about};
  // With messages matched by order, the receive must be posted at this position.
  if (in_order_ || agreed_.contains({message, stage, about})) post(key, expected);
}

void StageLink::post(const Key& key, Expected& expected) {
  const auto& [message, stage, micro_batch] = key;
  auto agreed = agreed_.find({message, stage, expected.about});
  if (agreed == agreed_.end()) {
    at::Tensor header = at::empty({kHeader}, at::kLong);
    std::vector<at::Tensor> headers{header};
    group_.backend()->recv(headers, expected.from, tag(key, 0))->wait();
    agreed = agreed_.emplace(std::tuple(message, stage, expected.about), decode(header)).first;
  }
  std::vector<PeerMessage> messages;
  for (const Form& form : agreed->second) {
    expected.tensors.push_back(at::empty(form.sizes, at::TensorOptions().dtype(form.dtype).device(device_)));
    messages.push_back({expected.tensors.back(), expected.from, tag(key, expected.tensors.size())});
  }
  expected.works = start_exchange(group_, {}, messages);
  expected.posted = true;
}

Tensors StageLink::receive(StageMessage message, int stage, int micro_batch) {
  const Key key{message, stage, micro_batch};
  Expected expected = std::move(expected_.at(key));
  expected_.erase(key);
  const TimePoint begin = Clock::now();
  if (!expected.posted) post(key, expected);
  for (const auto& work : expected.works) work->wait();
  waited_s_ += seconds(Clock::now() - begin);
  if (message == StageMessage::activation) {
    const Forms& forms = agreed_.at({message, stage, expected.about});
    for (std::size_t i = 0; i < forms.size(); ++i) {
      if (forms[i].takes_gradient) expected.tensors[i].requires_grad_();
    }
  }
  return std::move(expected.tensors);
}

void StageLink::flush() {
  for (const Sent& sent : sent_) {
    for (const auto& work : sent.works) work->wait();
  }
  sent_.clear();
}

Tensors StageLink::broadcast(const Tensors& tensors, int root) {
  if (group_.size() == 1) return tensors;
  const bool gives = group_.rank() == root;
  at::Tensor header = gives ? encode(forms_of(tensors)) : at::empty({kHeader}, at::kLong);
  rondo::broadcast(header, group_, root);
  Tensors result;
  const Forms forms = decode(header);
  for (std::size_t i = 0; i < forms.size(); ++i) {
    result.push_back(
        gives ? tensors[i].contiguous()
              : at::empty(forms[i].sizes, at::TensorOptions().dtype(forms[i].dtype).device(device_)));
    if (result.back().numel() > 0) rondo::broadcast(result.back(), group_, root);
  }
  return result;
}

}  // namespace rondo
