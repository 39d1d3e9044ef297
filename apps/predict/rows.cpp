#include "apps/predict/rows.h"

#include <torch/types.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

// The shortest text that reads back the same.
std::string number_text(float value) {
  std::array<char, 32> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return quoted + "\"";
}

// A sample's prediction, whatever it is written as.
struct Prediction {
  std::int64_t sample = 0;
  std::int64_t likeliest = -1;       // classes
  std::vector<float> values;         // probabilities, or numbers
  std::vector<std::int64_t> tokens;  // tokens
};

class Rows : public PredictionRows {
 public:
  Rows(PredictionKind kind, std::vector<std::string> class_names)
      : kind_(kind), class_names_(std::move(class_names)) {}

  void write(const at::Tensor& outputs) final {
    at::Tensor values = outputs;
    at::Tensor best;
    if (kind_ == PredictionKind::classes) values = outputs.softmax(1);
    if (kind_ == PredictionKind::numbers) values = outputs.reshape({outputs.size(0), -1});
    if (kind_ != PredictionKind::numbers) best = outputs.argmax(-1).contiguous();
    values = values.contiguous();
    for (std::int64_t row = 0; row < outputs.size(0); ++row) {
      Prediction prediction{.sample = sample_++, .values = {}, .tokens = {}};
      if (kind_ == PredictionKind::tokens) {
        const std::int64_t* tokens = best[row].data_ptr<std::int64_t>();
        prediction.tokens.assign(tokens, tokens + best.size(1));
      } else {
        const float* numbers = values[row].data_ptr<float>();
        prediction.values.assign(numbers, numbers + values.size(1));
        if (kind_ == PredictionKind::classes) prediction.likeliest = best[row].item<std::int64_t>();
      }
      write_row(prediction);
    }
  }

 protected:
  virtual void write_row(const Prediction& prediction) = 0;
  std::string name_of(std::int64_t number) const {
    return static_cast<std::size_t>(number) < class_names_.size()
               ? class_names_[static_cast<std::size_t>(number)]
               : std::to_string(number);
  }

  PredictionKind kind_;

 private:
  std::vector<std::string> class_names_;
  std::int64_t sample_ = 0;
};

class CsvRows final : public Rows {
 public:
  CsvRows(PredictionKind kind, std::vector<std::string> class_names, std::ostream& out)
      : Rows(kind, std::move(class_names)), out_(out) {}

 private:
  void write_header(const Prediction& first) {
    out_ << "sample";
    if (kind_ == PredictionKind::tokens) out_ << ",tokens";
    if (kind_ == PredictionKind::classes) out_ << ",class";
    for (std::size_t i = 0; i < first.values.size(); ++i) {
      const auto number = static_cast<std::int64_t>(i);
      out_ << ","
           << csv_field(kind_ == PredictionKind::classes ? str("p(", name_of(number), ")")
                                                         : str("value ", number));
    }
    out_ << "\n";
  }
  void write_row(const Prediction& prediction) override {
    if (prediction.sample == 0) write_header(prediction);
    out_ << prediction.sample;
    if (kind_ == PredictionKind::tokens) out_ << "," << join(prediction.tokens, " ");
    if (kind_ == PredictionKind::classes) out_ << "," << csv_field(name_of(prediction.likeliest));
    for (const float value : prediction.values) out_ << "," << number_text(value);
    out_ << "\n";
  }

  std::ostream& out_;
};

class JsonRows final : public Rows {
 public:
  JsonRows(PredictionKind kind, std::vector<std::string> class_names, std::ostream& out)
      : Rows(kind, std::move(class_names)), out_(out) {}

 private:
  void write_row(const Prediction& prediction) override {
    nlohmann::ordered_json row = {{"sample", prediction.sample}};
    if (kind_ == PredictionKind::tokens) row["tokens"] = prediction.tokens;
    if (kind_ == PredictionKind::classes) row["class"] = name_of(prediction.likeliest);
    if (kind_ != PredictionKind::tokens)
      row[kind_ == PredictionKind::classes ? "probabilities" : "values"] = prediction.values;
    out_ << row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
  }

  std::ostream& out_;
};

}  // namespace

std::unique_ptr<PredictionRows> make_prediction_rows(const std::string& format, PredictionKind kind,
                                                     std::vector<std::string> class_names,
                                                     std::ostream& out) {
  if (format == "csv") return std::make_unique<CsvRows>(kind, std::move(class_names), out);
  if (format == "jsonl") return std::make_unique<JsonRows>(kind, std::move(class_names), out);
  throw UsageError(str("--format ", format, ": expected csv or jsonl"));
}

}  // namespace rondo
