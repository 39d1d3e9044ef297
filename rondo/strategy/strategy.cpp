#include "rondo/strategy/strategy.h"

namespace rondo {
namespace {

thread_local Strategy* current_strategy = nullptr;

}  // namespace

Strategy::Scope Strategy::scope() { return Scope(this); }

Strategy* Strategy::current() { return current_strategy; }

Strategy::Scope::Scope(Strategy* strategy) : outer_(current_strategy) { current_strategy = strategy; }

Strategy::Scope::~Scope() { current_strategy = outer_; }

}  // namespace rondo
