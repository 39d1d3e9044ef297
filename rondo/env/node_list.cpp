#include "rondo/env/node_list.h"

#include <cctype>
#include <limits>

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::env {
namespace {

constexpr std::size_t kMostHosts = 1'000'000;

// Cursor over a compressed list that can say where it stands.
class Reader {
 public:
  Reader(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  bool done() const { return at_ == text_.size(); }
  char peek() const { return done() ? '\0' : text_[at_]; }
  char next() { return text_[at_++]; }
  bool accept(char c) {
    if (peek() != c || done()) return false;
    ++at_;
    return true;
  }
  std::string_view digits() {
    const std::size_t begin = at_;
    while (!done() && std::isdigit(static_cast<unsigned char>(text_[at_]))) ++at_;
    if (begin == at_) fail("expected a number");
    if (at_ - begin > 9) fail("a number of more than 9 digits");
    return text_.substr(begin, at_ - begin);
  }
  [[noreturn]] void fail(const std::string& why) const {
    throw UsageError(str(what_, ": '", text_, "' is malformed at character ", at_ + 1, ": ", why));
  }

 private:
  std::string_view text_;
  std::string_view what_;
  std::size_t at_ = 0;
};

std::string padded(long long number, std::size_t width) {
  std::string text = std::to_string(number);
  return text.size() < width ? std::string(width - text.size(), '0') + text : text;
}

// The inside of a bracket, after '[': "10,20,25-27]".
std::vector<std::string> read_bracket(Reader& reader) {
  std::vector<std::string> numbers;
  do {
    const std::string_view first = reader.digits();
    const long long low = parse_integer(first, "node list");
    long long high = low;
    if (reader.accept('-')) high = parse_integer(reader.digits(), "node list");
    if (high < low) reader.fail(str("the range ", low, "-", high, " runs backwards"));
    if (numbers.size() + static_cast<std::size_t>(high - low) >= kMostHosts) reader.fail("too many hosts");
    for (long long number = low; number <= high; ++number) numbers.push_back(padded(number, first.size()));
  } while (reader.accept(','));
  if (!reader.accept(']')) reader.fail("expected ',', '-' or ']'");
  return numbers;
}

// One comma-separated entry: text and brackets in any order.
std::vector<std::string> read_entry(Reader& reader) {
  std::vector<std::string> names = {""};
  bool any = false;
  while (!reader.done() && reader.peek() != ',') {
    any = true;
    const char c = reader.next();
    if (c == '[') {
      const std::vector<std::string> numbers = read_bracket(reader);
      if (names.size() * numbers.size() > kMostHosts) reader.fail("too many hosts");
      std::vector<std::string> product;
      product.reserve(names.size() * numbers.size());
      for (const std::string& name : names) {
        for (const std::string& number : numbers) product.push_back(name + number);
      }
      names = std::move(product);
    } else if (c == ']' || std::isspace(static_cast<unsigned char>(c))) {
      reader.fail(str("unexpected '", c, "'"));
    } else {
      for (std::string& name : names) name += c;
    }
  }
  if (!any) reader.fail("an empty host name");
  return names;
}

struct SplitName {
  std::string prefix;
  std::string digits;  // trailing, at most 9
};

SplitName split_name(const std::string& host) {
  std::size_t begin = host.size();
  while (begin > 0 && host.size() - begin < 9 && std::isdigit(static_cast<unsigned char>(host[begin - 1])))
    --begin;
  return {host.substr(0, begin), host.substr(begin)};
}

}  // namespace

std::vector<std::string> expand_node_list(std::string_view list, std::string_view what) {
  std::vector<std::string> hosts;
  if (list.empty()) return hosts;
  Reader reader(list, what);
  do {
    for (std::string& name : read_entry(reader)) hosts.push_back(std::move(name));
    if (hosts.size() > kMostHosts) reader.fail("too many hosts");
  } while (reader.accept(','));
  return hosts;
}

std::string compress_node_list(const std::vector<std::string>& hosts) {
  std::vector<std::string> entries;
  std::size_t begin = 0;
  while (begin < hosts.size()) {
    const SplitName first = split_name(hosts[begin]);
    std::vector<std::string> ranges;
    std::size_t at = begin;
    while (at < hosts.size() && !first.digits.empty()) {
      const SplitName low = split_name(hosts[at]);
      if (low.prefix != first.prefix || low.digits.size() != first.digits.size()) break;
      const long long low_number = parse_integer(low.digits, "host name");
      std::size_t end = at + 1;
      while (end < hosts.size() &&
             hosts[end] ==
                 first.prefix + padded(low_number + static_cast<long long>(end - at), low.digits.size()) &&
             split_name(hosts[end]).digits.size() == low.digits.size()) {
        ++end;
      }
      ranges.push_back(end == at + 1 ? low.digits : low.digits + "-" + split_name(hosts[end - 1]).digits);
      at = end;
    }
    if (at <= begin + 1) {
      entries.push_back(hosts[begin]);
      at = begin + 1;
    } else {
      entries.push_back(first.prefix + "[" + join(ranges, ",") + "]");
    }
    begin = at;
  }
  return join(entries, ",");
}

std::vector<int> expand_tasks_per_node(std::string_view text, std::string_view what) {
  std::vector<int> counts;
  Reader reader(text, what);
  do {
    const auto count = static_cast<int>(parse_integer(reader.digits(), what));
    long long times = 1;
    if (reader.accept('(')) {
      if (!reader.accept('x')) reader.fail("expected 'x'");
      times = parse_integer(reader.digits(), what);
      if (!reader.accept(')')) reader.fail("expected ')'");
    }
    if (counts.size() + static_cast<std::size_t>(times) > kMostHosts) reader.fail("too many hosts");
    counts.insert(counts.end(), static_cast<std::size_t>(times), count);
  } while (reader.accept(','));
  if (!reader.done()) reader.fail("expected ',' or '('");
  return counts;
}

}  // namespace rondo::env
