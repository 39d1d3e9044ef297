// `rondo bench-dev codecs`: the rate at which one core encodes and decodes.
#include <random>

#include "apps/bench/commands.h"
#include "apps/bench/harness/benchmark.h"
#include "rondo/base/bytes.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/codec.h"
#include "rondo/collective/codec/kernels.h"

namespace rondo::bench {
namespace {

struct CodecsFlags {
  std::string codecs;
  std::string size = "25MiB";
  int runs = 15;
};

Json measure_codec(const std::string& name, const CodecsFlags& flags) {
  const auto codec = collective::make_codec(name);
  const std::size_t count = parse_bytes(flags.size, "--size").count / sizeof(float);
  const std::size_t bytes = count * sizeof(float);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  std::vector<float> residual(count), decoded(count);
  std::vector<std::byte> encoded(codec->encoded_bytes(count));
  // Returns 10^9 bytes of float32 per second, in the fastest run.
  const auto speed = [&](const std::function<void()>& action) {
    double best = 0;
    for (int run = 0; run < flags.runs; ++run)
      best = std::max(best, static_cast<double>(bytes) / std::max(timed(action) * 1e9, 1.0));
    return best;
  };
  return {{"codec", name},
          {"kernels", collective::kernels::codec_kernels().name},
          {"bytes", bytes},
          {"encoded_bytes", encoded.size()},
          {"encode_gbps", speed([&] { codec->encode(values, encoded, {}); })},
          {"encode_with_feedback_gbps", speed([&] { codec->encode(values, encoded, residual); })},
          {"decode_gbps", speed([&] { codec->decode(encoded, decoded); })},
          {"decode_add_gbps", speed([&] { codec->decode_add(encoded, decoded); })}};
}

Json run_codecs(const CodecsFlags& flags, bool prints) {
  const std::vector<std::string> names =
      flags.codecs.empty() ? collective::codec_names() : split(flags.codecs, ',');
  for (const std::string& name : names) collective::make_codec(name);  // throws for an unknown one
  Json rows = Json::array();
  for (const std::string& name : names) rows.push_back(measure_codec(name, flags));
  if (prints) {
    print_table(rows, {{"GB/s", -12, "codec"},
                       {"encode", 14, "encode_gbps", 2},
                       {"with feedback", 14, "encode_with_feedback_gbps", 2},
                       {"decode", 14, "decode_gbps", 2},
                       {"decode, add", 14, "decode_add_gbps", 2},
                       {"encoded bytes", 14, "encoded_bytes"}});
  }
  return rows;
}

}  // namespace

Command add_codecs(CLI::App& parent) {
  return add_benchmark<CodecsFlags>(
      parent,
      {"codecs", "Speed of encoding and decoding on one core",
       "Speeds are in GB of float32 input per second.\n\nExamples:\n  rondo bench-dev codecs\n  rondo "
       "bench-dev codecs --codec int8,top_k:0.05 --size 1MiB --json -"},
      [](CLI::App& app, CodecsFlags& flags) {
        app.add_option("--codec", flags.codecs,
                       "codecs (default: all): " + join(collective::codec_names(), ", "));
        app.add_option("--size", flags.size, "size of the float32 input");
        add_turns_flag(app, "--runs", flags.runs, "number of runs; the fastest counts");
      },
      run_codecs);
}

}  // namespace rondo::bench
