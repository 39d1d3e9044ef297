#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <array>
#include <map>
#include <memory>

#include "checks.h"
#include "rondo/base/text.h"

namespace doctor {
namespace {

using rondo::str;

std::string address_text(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text.data(), text.size());
  } else if (address.sa_family == AF_INET6) {
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, text.data(), text.size());
  }
  return text.data();
}

struct Interface {
  bool up = false;
  bool loopback = false;
  std::vector<std::string> addresses;
};

std::map<std::string, Interface> interfaces() {
  std::map<std::string, Interface> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    Interface& interface = found[entry->ifa_name];
    interface.up = (entry->ifa_flags & IFF_UP) != 0;
    interface.loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    const std::string address = entry->ifa_addr == nullptr ? "" : address_text(*entry->ifa_addr);
    if (!address.empty()) interface.addresses.push_back(address);
  }
  return found;
}

}  // namespace

Findings check_network() {
  Findings findings;
  for (const auto& [name, interface] : interfaces()) {
    std::string detail = str(interface.up ? "up" : "down", interface.loopback ? ", loopback" : "");
    if (!interface.addresses.empty()) detail += ", " + rondo::join(interface.addresses, " ");
    nlohmann::json data = {
        {"up", interface.up}, {"loopback", interface.loopback}, {"addresses", interface.addresses}};
    const std::string speed = first_line("/sys/class/net/" + name + "/speed");
    if (!speed.empty() && speed[0] != '-') {
      detail += ", " + speed + " Mbit/s";
      data["mbit_per_s"] = std::stoi(speed);
    }
    findings.push_back({"network", name, State::ok, detail, "", std::move(data)});
  }
  if (findings.empty()) {
    findings.push_back({"network", "interfaces", State::warning, "none found", "ip link set lo up", nullptr});
  }
  return findings;
}

}  // namespace doctor
