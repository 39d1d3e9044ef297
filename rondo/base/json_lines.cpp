#include "rondo/base/json_lines.h"

#include <iterator>

namespace rondo {
namespace {

// Iterates over a text and counts the lines that the JSON parser has consumed. Copies share the count.
class LineCounter {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  LineCounter(const char* at, int* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  LineCounter& operator++() {
    if (*at_++ == '\n') ++*line_;
    return *this;
  }
  LineCounter operator++(int) {
    LineCounter before = *this;
    ++*this;
    return before;
  }
  bool operator==(const LineCounter& other) const { return at_ == other.at_; }
  bool operator!=(const LineCounter& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  int* line_;
};

}  // namespace

void parse_json_by_line(std::string_view text, nlohmann::json_sax<nlohmann::json>& reader, int& line) {
  line = 1;
  nlohmann::json::sax_parse(LineCounter(text.data(), &line), LineCounter(text.data() + text.size(), &line),
                            &reader);
}

}  // namespace rondo
