#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <string>
#include <type_traits>
#include <vector>

// Errors are judged by the facts in them (ranks, names, numbers), not by the words around these.
namespace rondo::testing {

template <class Expected>
bool is(const std::exception& error) {
  if constexpr (std::is_same_v<Expected, std::exception>) {
    return true;
  } else {
    return dynamic_cast<const Expected*>(&error) != nullptr;
  }
}

// The message of the `Expected` exception that `call` throws.
template <class Expected = std::exception>
std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    EXPECT_TRUE(is<Expected>(error)) << "another exception: " << error.what();
    return error.what();
  }
  return "no exception";
}

// Whether `fact` stands in `text` by itself: 2 is not in "12 bytes", nor 'bias' in 'biases'.
inline bool states(const std::string& text, const std::string& fact) {
  const auto joins = [](char a, char b) {
    return std::isalnum(static_cast<unsigned char>(a)) != 0 &&
           std::isalnum(static_cast<unsigned char>(b)) != 0;
  };
  for (std::size_t at = text.find(fact); at != std::string::npos; at = text.find(fact, at + 1)) {
    const std::size_t end = at + fact.size();
    if ((at == 0 || !joins(text[at - 1], fact.front())) &&
        (end == text.size() || !joins(fact.back(), text[end])))
      return true;
  }
  return false;
}

inline void expect_facts(const std::string& text, const std::vector<const char*>& facts) {
  for (const char* const fact : facts)
    EXPECT_TRUE(states(text, fact)) << "'" << fact << "' is not in: " << text;
}

}  // namespace rondo::testing
