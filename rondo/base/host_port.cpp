#include "rondo/base/host_port.h"

namespace rondo {

std::string without_brackets(std::string_view host) {
  const bool has_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  return std::string(has_brackets ? host.substr(1, host.size() - 2) : host);
}

HostPort split_host_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const bool has_brackets = text.starts_with('[');
  const bool ends_in_bracket = has_brackets && text.ends_with(']');
  const bool is_plain_ipv6 = !has_brackets && colon != text.find(':');
  if (colon == std::string_view::npos || ends_in_bracket || is_plain_ipv6)
    return {without_brackets(text), ""};
  return {without_brackets(text.substr(0, colon)), std::string(text.substr(colon + 1))};
}

}  // namespace rondo
