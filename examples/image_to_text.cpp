// Reads numbers in images, as Donut reads documents, with a minimal encoder-decoder. The encoder takes
// patches of the image. The decoder attends to the image and writes one token after the other. There is no
// separate text recognition.
//   rondo run -n 2 build/release/bin/examples/image_to_text
#include <torch/nn.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <array>
#include <iostream>

#include "rondo/collectives.h"
#include "rondo/data.h"
#include "rondo/nn.h"
#include "rondo/parallel.h"
#include "rondo/train.h"

namespace {

constexpr std::int64_t kDigits = 3, kHeight = 8, kWidth = 8 * kDigits;
constexpr std::int64_t kFeatures = 32;  // per patch and per token
constexpr std::int64_t kBegin = 10, kEnd = 11, kTokens = 12;

struct DonutImpl : torch::nn::Module {
  DonutImpl() {
    using namespace torch::nn;
    patches = register_module("patches", Conv2d(Conv2dOptions(1, kFeatures, 4).stride(4)));
    places = register_parameter("places", torch::randn({kHeight * kWidth / 16, 1, kFeatures}) * 0.1);
    encoder = register_module(
        "encoder",
        TransformerEncoderLayer(TransformerEncoderLayerOptions(kFeatures, 4).dim_feedforward(64).dropout(0)));
    words = register_module("words", Embedding(kTokens, kFeatures));
    turns = register_parameter("turns", torch::randn({kDigits + 1, 1, kFeatures}) * 0.1);
    decoder = register_module(
        "decoder",
        TransformerDecoderLayer(TransformerDecoderLayerOptions(kFeatures, 4).dim_feedforward(64).dropout(0)));
    head = register_module("head", rondo::nn::Linear(kFeatures, kTokens));
  }
  // Takes image [samples, 1, height, width] and tokens so far [samples, length]; returns logits [samples,
  // length, tokens].
  at::Tensor forward(const at::Tensor& image, const at::Tensor& tokens) {
    const at::Tensor seen = encoder(patches(image).flatten(2).permute({2, 0, 1}) + places);
    const std::int64_t length = tokens.size(1);
    const at::Tensor written = words(tokens).transpose(0, 1) + turns.narrow(0, 0, length);
    const at::Tensor not_yet = torch::full({length, length}, -1e9).triu(1);
    return head(decoder->forward(written, seen, not_yet)).transpose(0, 1);
  }
  torch::nn::Conv2d patches{nullptr};
  at::Tensor places, turns;
  torch::nn::TransformerEncoderLayer encoder{nullptr};
  torch::nn::Embedding words{nullptr};
  torch::nn::TransformerDecoderLayer decoder{nullptr};
  rondo::nn::Linear head{nullptr};
};

// Segments of digits on a pocket calculator: top, upper left, upper right, middle, lower left, lower right,
// bottom.
constexpr std::array<const char*, 10> kSegments = {"1110111", "0010010", "1011101", "1011011", "0111010",
                                                   "1101011", "1101111", "1010010", "1111111", "1111011"};

void draw(at::Tensor image, std::int64_t digit, std::int64_t left) {
  const char* segments = kSegments[static_cast<std::size_t>(digit)];
  const auto line = [&](int segment, std::int64_t top, std::int64_t from, std::int64_t height,
                        std::int64_t width) {
    if (segments[segment] == '1') image.narrow(0, top, height).narrow(1, left + from, width).fill_(1);
  };
  line(0, 0, 1, 1, 4);
  line(1, 0, 1, 4, 1);
  line(2, 0, 4, 4, 1);
  line(3, 3, 1, 1, 4);
  line(4, 3, 1, 4, 1);
  line(5, 3, 4, 4, 1);
  line(6, 6, 1, 1, 4);
}

struct Pictures {
  at::Tensor images, digits;
};

Pictures pictures(std::int64_t count, std::uint64_t seed) {
  torch::manual_seed(seed);
  const at::Tensor digits = torch::randint(10, {count, kDigits});
  at::Tensor images = torch::rand({count, 1, kHeight, kWidth}) * 0.4;
  for (std::int64_t i = 0; i < count; ++i) {
    for (std::int64_t d = 0; d < kDigits; ++d) draw(images[i][0], digits[i][d].item<std::int64_t>(), 8 * d);
  }
  return {images, digits};
}

// In training the decoder gets the text up to each position and predicts the next token.
std::shared_ptr<const rondo::Dataset> sentences(const Pictures& from) {
  const std::int64_t count = from.images.size(0);
  const at::Tensor begin = torch::full({count, 1}, kBegin), end = torch::full({count, 1}, kEnd);
  return std::make_shared<rondo::TensorDataset>(rondo::Tensors{from.images, at::cat({begin, from.digits}, 1)},
                                                rondo::Tensors{at::cat({from.digits, end}, 1)}, kTokens);
}

// Appends the most likely token repeatedly.
at::Tensor read(DonutImpl& model, const at::Tensor& images) {
  const torch::NoGradGuard no_gradients;
  at::Tensor text = torch::full({images.size(0), 1}, kBegin);
  for (std::int64_t i = 0; i < kDigits; ++i)
    text = at::cat({text, model.forward(images, text).select(1, i).argmax(1, true)}, 1);
  return text.narrow(1, 1, kDigits);
}

}  // namespace

int main() {
  const rondo::Context context = rondo::init();
  const auto strategy = rondo::all_strategies().make("ddp", context);
  torch::manual_seed(1);
  const auto model = std::make_shared<DonutImpl>();
  rondo::Trainer trainer(*strategy, model);
  trainer.compile(rondo::OptimizerOptions{.name = "adamw", .learning_rate = 3e-3});
  const auto train = sentences(pictures(2048, 2));
  for (int epoch = 1; epoch <= 6; ++epoch) {
    const auto result = trainer.fit(train, {.epochs = epoch, .batch_size = 32 / context.world_size()});
    if (context.rank() == 0)
      std::cout << "epoch " << epoch << " loss " << result.history.back().loss << std::endl;
  }
  const Pictures unseen = pictures(256, 3);
  const at::Tensor text = read(*model, unseen.images);
  const double right = (text == unseen.digits).all(1).to(torch::kFloat).mean().item<double>();
  if (context.rank() == 0) std::cout << "numbers read right " << right << std::endl;
  return 0;
}
