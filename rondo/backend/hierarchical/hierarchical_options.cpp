#include "rondo/backend/hierarchical/hierarchical_options.h"

#include "rondo/backend/engine/engine_text.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/collective/codec/codec.h"

namespace rondo {
namespace {

constexpr Bytes kLeastChunk = KiB(4);

AllowedValues an_engine_between_hosts() {
  return {.check =
              [](const std::string& text, const std::string& what) {
                if (text == "native")
                  throw UsageError(str(what, " native: native reaches one host only; give gloo or mpi"));
                if (text == "nccl") {
                  throw UsageError(str(what,
                                       " nccl: this engine sends CPU tensors between hosts; give gloo or "
                                       "mpi, or --backend nccl for GPU tensors"));
                }
              },
          .type = kEngineOption};
}

AllowedValues a_codec_between_hosts() {
  return {.check =
              [](const std::string& text, const std::string& what) {
                try {
                  collective::make_codec(text);
                } catch (const UsageError& error) {
                  throw UsageError(str(what, " ", text, ": ", error.what()));
                }
              },
          .type = kCodecOption};
}

AllowedValues a_chunk() {
  return {.check =
              [](const std::string& text, const std::string& what) {
                if (parse_bytes(text, what).count < kLeastChunk.count)
                  throw UsageError(str(what, " ", text, ": expected at least ", to_string(kLeastChunk)));
              },
          .type = "SIZE"};
}

}  // namespace

Declaration HierarchicalEngineFactory::declaration() {
  OptionsOf<Options> table;
  table.begin_group("Engine between hosts (docs/multi_host.md)");
  // In the order of the arguments of `hierarchical(native, gloo)`.
  table.add("intra-host-engine", &Options::inner, "Engine inside a host", one_of({"native"}));
  table.add("inter-host-engine", &Options::outer, "Engine between hosts", an_engine_between_hosts());
  table.add("inter-host-codec", &Options::codec,
            "Codec of float32 sums between hosts: none, bfloat16, float16, int8, top_k[:FRACTION]",
            a_codec_between_hosts());
  table.add("inter-host-ranks", &Options::inter_host_ranks,
            "Ranks per host that exchange with other hosts; 0: all ranks of the smallest host",
            zero_or_more());
  table.add("inter-host-chunk", &Options::chunk_bytes,
            "Size of the chunks that are reduced, sent and broadcast", a_chunk());
  table.add("inter-host-window", &Options::window, "Maximum number of chunks in flight", above_zero());
  // The command line sets them in brackets: `hierarchical(native, gloo, window=8)`.
  table.without_flags({"intra-host-engine", "inter-host-engine", "inter-host-codec", "inter-host-ranks",
                       "inter-host-chunk", "inter-host-window"});
  return {.name = "hierarchical",
          .summary = "one engine inside each host, another between them: hierarchical(native, gloo)",
          .options = table};
}

}  // namespace rondo
