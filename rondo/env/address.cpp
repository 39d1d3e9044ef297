#include "rondo/env/address.h"

#include "rondo/base/error.h"
#include "rondo/base/text.h"

namespace rondo::env {

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

namespace {

[[noreturn]] void fail(std::string_view text, std::string_view why) {
  throw UsageError(str("init_method '", text, "': ", why,
                       "; expected env://, file:///path/shared/by/all/ranks or tcp://host:port"));
}

InitMethod parse_tcp(std::string_view text, std::string_view address) {
  const HostPort parts = split_host_port(address);
  if (parts.port.empty()) fail(text, "the port is missing");
  if (parts.host.empty()) fail(text, "the host is missing");
  const long long port = parse_integer(parts.port, str("init_method '", text, "': port"));
  if (port < 1 || port > 65535) fail(text, str("port ", port, " is not in 1-65535"));
  return {InitMethod::Kind::tcp, "", parts.host, static_cast<int>(port)};
}

}  // namespace

InitMethod parse_init_method(std::string_view text) {
  if (text.empty() || text == "env://") return {};
  if (text.starts_with("file://")) {
    const std::string_view path = text.substr(7);
    if (path.empty()) fail(text, "the path is missing");
    if (path.front() != '/') fail(text, "the path must be absolute (three slashes: file:///path)");
    return {InitMethod::Kind::file, std::string(path), "", 0};
  }
  if (text.starts_with("tcp://")) return parse_tcp(text, text.substr(6));
  fail(text, "not a known method");
}

}  // namespace rondo::env
