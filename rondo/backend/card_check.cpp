#include "rondo/backend/card_check.h"

#include "rondo/backend/engine/engine_text.h"
#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo {

void check_cards(const std::string& engine, const std::vector<RankCard>& cards) {
  if (split_engine(engine).name != "nccl") return;
  if (const std::string shared = shared_cards(cards); !shared.empty()) {
    throw UsageError(str("--backend ", engine, ": ", shared,
                         ", and NCCL takes one rank a card; start at most as many ranks on a host as it has "
                         "cards, or use --backend native"));
  }
}

}  // namespace rondo
