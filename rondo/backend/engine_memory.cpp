#include "rondo/backend/engine_memory.h"

namespace rondo {

std::map<std::string, at::Tensor> engine_memory(const Group& group) {
  ExtendedBackend* const engine = group.member() ? group.extended() : nullptr;
  return engine != nullptr ? engine->memory() : std::map<std::string, at::Tensor>();
}

std::string restore_engine_memory(const Group& group, const std::map<std::string, at::Tensor>& memory) {
  ExtendedBackend* const engine = group.member() ? group.extended() : nullptr;
  if (engine != nullptr) return engine->restore_memory(memory);
  return memory.empty() ? std::string() : "is of an engine with a codec, and this one has none";
}

}  // namespace rondo
