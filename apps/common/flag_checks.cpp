#include "apps/common/flag_checks.h"

#include <sys/stat.h>

#include <cerrno>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/env/device_name.h"

namespace rondo {
namespace {

// Returns 1000000 rather than 1e+06.
std::string plain(double number) {
  if (std::nearbyint(number) == number && std::abs(number) < 1e15)
    return std::to_string(static_cast<long long>(number));
  return str(number);
}

// Accepts a number for which `is_right` returns true.
CLI::Validator number_that(std::function<bool(double)> is_right, const std::string& rule) {
  return CLI::Validator(
      [is_right = std::move(is_right), rule](std::string& text) {
        double number = 0;
        try {
          number = parse_number(text, "");
        } catch (const UsageError&) {
          return str(text, " is not a number that is ", rule);
        }
        return is_right(number) ? std::string() : str(text, " is not ", rule);
      },
      "");
}

}  // namespace

CLI::Validator positive_number() {
  return number_that([](double number) { return number > 0; }, "above 0");
}

CLI::Validator not_negative_number() {
  return number_that([](double number) { return number >= 0; }, "0 or more");
}

CLI::Validator between(double least, double most) {
  return number_that([least, most](double number) { return number >= least && number <= most; },
                     str("from ", plain(least), " to ", plain(most)));
}

CLI::Validator existing_path() {
  return CLI::Validator(
      [](std::string& path) {
        struct stat status {};
        return stat(path.c_str(), &status) == 0 ? std::string() : str(path, ": ", errno_text(errno));
      },
      "");
}

CLI::Validator accepted_by(std::function<void(const std::string&)> check) {
  return CLI::Validator(
      [check = std::move(check)](const std::string& text) {
        try {
          check(text);
          return std::string();
        } catch (const UsageError& error) {
          return std::string(error.what());
        }
      },
      "");
}

CLI::Option* add_device_flag(CLI::App& app, std::string& device) {
  return app
      .add_option("--device", device, "Device of the tensors: auto (cuda if available), cpu, cuda or cuda:N")
      ->check(accepted_by([](const std::string& text) { parse_device_name(text, "device"); }))
      ->capture_default_str();
}

}  // namespace rondo
