// `rondo bench codecs`: how fast one core encodes and decodes.
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>

#include "apps/bench/commands.h"
#include "apps/common/flag_checks.h"
#include "apps/common/result_flags.h"
#include "rondo/base/bytes.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/base/time.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/collective/codec/kernels.h"

namespace rondo::bench {
namespace {

using Json = nlohmann::ordered_json;

struct CodecsFlags {
  std::string codecs;
  std::string size = "25MiB";
  int runs = 15;
  std::string json;
};

// 10^9 bytes of float32 a second, in the fastest run.
double speed(Bytes bytes, int runs, const std::function<void()>& action) {
  double best = 0;
  for (int run = 0; run < runs; ++run) {
    const long long begin = monotonic_ns();
    action();
    const auto elapsed = static_cast<double>(std::max(monotonic_ns() - begin, 1LL));
    best = std::max(best, static_cast<double>(bytes.count) / elapsed);
  }
  return best;
}

Json measure_codec(const std::string& name, const CodecsFlags& options) {
  const auto codec = collective::make_codec(name);
  const std::size_t count = parse_bytes(options.size, "--size").count / sizeof(float);
  const Bytes bytes{count * sizeof(float)};
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  std::vector<float> residual(count);
  std::vector<float> decoded(count);
  std::vector<std::byte> encoded(codec->encoded_bytes(count));
  const auto time = [&](const std::function<void()>& action) { return speed(bytes, options.runs, action); };
  return {{"codec", name},
          {"kernels", collective::kernels::codec_kernels().name},
          {"bytes", bytes.count},
          {"encoded_bytes", encoded.size()},
          {"encode_gbps", time([&] { codec->encode(values, encoded, {}); })},
          {"encode_with_feedback_gbps", time([&] { codec->encode(values, encoded, residual); })},
          {"decode_gbps", time([&] { codec->decode(encoded, decoded); })},
          {"decode_add_gbps", time([&] { codec->decode_add(encoded, decoded); })}};
}

int run_codecs(const CodecsFlags& options) {
  const std::vector<std::string> names =
      options.codecs.empty() ? collective::codec_names() : split(options.codecs, ',');
  for (const std::string& name : names) collective::make_codec(name);  // throws for an unknown one
  Json results = Json::array();
  for (const std::string& name : names) results.push_back(measure_codec(name, options));
  if (options.json != "-") {
    std::printf("%-12s %14s %14s %14s %14s %14s\n", "GB/s", "encode", "with feedback", "decode",
                "decode, add", "encoded bytes");
    for (const Json& row : results) {
      std::printf("%-12s %14.2f %14.2f %14.2f %14.2f %14zu\n", row["codec"].get<std::string>().c_str(),
                  row["encode_gbps"].get<double>(), row["encode_with_feedback_gbps"].get<double>(),
                  row["decode_gbps"].get<double>(), row["decode_add_gbps"].get<double>(),
                  row["encoded_bytes"].get<std::size_t>());
    }
  }
  write_json(options.json, results);
  return 0;
}

}  // namespace

Command add_codecs(CLI::App& app) {
  const auto options = std::make_shared<CodecsFlags>();
  CLI::App* command = app.add_subcommand("codecs", "How fast codecs encode and decode, on one core");
  command->add_option("--codec", options->codecs,
                      "codecs (default: all): " + join(collective::codec_names(), ", "));
  command->add_option("--size", options->size, "float32 values, in bytes")->capture_default_str();
  command->add_option("--runs", options->runs, "runs, of which the fastest counts")
      ->check(rondo::positive_number())
      ->capture_default_str();
  add_json_flag(*command, options->json);
  command->footer(
      "Speeds are in 10^9 bytes of float32 a second, whatever their encoding's length.\n\n"
      "Examples:\n  rondo bench codecs\n  rondo bench codecs --codec int8,top_k:0.05 --size 1MiB --json -");
  return {command, [options] { return run_codecs(*options); }};
}

}  // namespace rondo::bench
