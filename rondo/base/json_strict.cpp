#include "rondo/base/json_strict.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "rondo/base/error.h"
#include "rondo/base/file_access.h"
#include "rondo/base/printable.h"
#include "rondo/base/text.h"

namespace rondo {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Builds the value from the parser's events. The library's own builder searches an ordered object linearly
// for every new key and has no depth limit.
class ValueBuilder : public nlohmann::json_sax<OrderedJson> {
 public:
  explicit ValueBuilder(const std::string& what) : what_(what) {}

  OrderedJson take() { return std::move(root_); }

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t&) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t& value) override { return put(std::move(value)); }
  bool start_object(std::size_t) override {
    open(OrderedJson::object());
    keys_.emplace_back();
    return true;
  }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second)
      throw DataError(str(what_, ": key \"", printable(name), "\" appears twice in one object"));
    key_ = std::move(name);
    return true;
  }
  bool end_object() override {
    keys_.pop_back();
    open_.pop_back();
    return true;
  }
  bool start_array(std::size_t) override {
    open(OrderedJson::array());
    return true;
  }
  bool end_array() override {
    open_.pop_back();
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    throw DataError(str(what_, ": not valid JSON at byte ", position, ": ", json_problem(error)));
  }

 private:
  template <class Value>
  bool put(Value&& value) {
    place(std::forward<Value>(value));
    return true;
  }
  // Adds a value at the current position: as the root, at the end of a list, or under the last key.
  template <class Value>
  OrderedJson& place(Value&& value) {
    if (open_.empty()) {
      root_ = OrderedJson(std::forward<Value>(value));
      return root_;
    }
    if (open_.back()->is_array()) {
      auto& list = open_.back()->get_ref<OrderedJson::array_t&>();
      return list.emplace_back(std::forward<Value>(value));
    }
    // key() has already checked that the key is new, by its hash.
    OrderedJson::object_t::Container& members = open_.back()->get_ref<OrderedJson::object_t&>();
    return members.emplace_back(std::move(key_), OrderedJson(std::forward<Value>(value))).second;
  }
  void open(OrderedJson empty) {
    if (open_.size() == static_cast<std::size_t>(kDeepestJson)) {
      throw DataError(str(what_, ": lists and objects are nested more than ", kDeepestJson,
                          " levels deep, the maximum in rondo's files"));
    }
    open_.push_back(&place(std::move(empty)));
  }

  const std::string& what_;
  OrderedJson root_;
  std::string key_;
  // Values that are still open. The pointers stay valid because a container does not grow while a value
  // inside it is open.
  std::vector<OrderedJson*> open_;
  std::vector<std::unordered_set<std::string>> keys_;
};

template <class Json>
[[noreturn]] void refuse_json(const Json& value, const std::string& where, const std::string& expected) {
  throw DataError(str(where, ": ", printable(value.dump()), " is not ", expected));
}

}  // namespace

OrderedJson parse_json_strict(std::string_view text, const std::string& what) {
  ValueBuilder builder(what);
  OrderedJson::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

OrderedJson read_json_file(const std::filesystem::path& path, Bytes limit) {
  return parse_json_strict(read_regular_file(path, limit), path.string());
}

std::string json_problem(const std::exception& error) {
  // Example: "[json.exception.type_error.302] type must be string, but is number".
  std::string_view text = error.what();
  if (text.starts_with("[json.exception")) text.remove_prefix(std::min(text.find(']') + 2, text.size()));
  // The caller adds the byte offset.
  if (const std::size_t colon = text.find(": "); text.starts_with("parse error at"))
    text.remove_prefix(colon == std::string_view::npos ? 0 : colon + 2);
  return printable(text, 240);
}

template <class Json>
std::int64_t json_integer(const Json& value, const std::string& where, std::int64_t low, std::int64_t high) {
  const auto fail = [&] { refuse_json(value, where, str("a whole number from ", low, " to ", high)); };
  std::int64_t number = 0;
  if (value.is_number_unsigned()) {
    const auto given = value.template get<std::uint64_t>();
    if (given > static_cast<std::uint64_t>(INT64_MAX)) fail();
    number = static_cast<std::int64_t>(given);
  } else if (value.is_number_integer()) {
    number = value.template get<std::int64_t>();
  } else if (value.is_number_float()) {
    const double given = value.template get<double>();
    // Values from 2^63 on do not fit int64. Whole doubles above 2^53 are accepted although they may be
    // rounded.
    if (!(given >= -0x1p63 && given < 0x1p63) || given != std::floor(given)) fail();
    number = static_cast<std::int64_t>(given);
  } else {
    fail();
  }
  if (number < low || number > high) fail();
  return number;
}

template <class Json>
double json_number(const Json& value, const std::string& where, double low, double high) {
  const bool is_bounded_below = low > -DBL_MAX, is_bounded = high < DBL_MAX;
  const auto fail = [&] {
    refuse_json(value, where,
                is_bounded         ? str("a number from ", low, " to ", high)
                : is_bounded_below ? str("a number of at least ", low)
                                   : std::string("a number"));
  };
  if (!value.is_number()) fail();
  const double number = value.template get<double>();
  if (!std::isfinite(number) || number < low || number > high) fail();
  return number;
}

template <class Json>
std::string json_text(const Json& value, const std::string& where) {
  if (!value.is_string()) refuse_json(value, where, "a text");
  return value.template get<std::string>();
}

template <class Json>
bool json_boolean(const Json& value, const std::string& where) {
  if (!value.is_boolean()) refuse_json(value, where, "true or false");
  return value.template get<bool>();
}

template <class Json>
const Json& json_list(const Json& value, const std::string& where) {
  if (!value.is_array()) refuse_json(value, where, "a list");
  return value;
}

template <class Json>
const Json& json_object(const Json& value, const std::string& where) {
  if (!value.is_object()) refuse_json(value, where, "an object");
  return value;
}

template <class Json>
const Json& json_member(const Json& object, const std::string& key, const std::string& where) {
  json_object(object, where);
  const auto found = object.find(key);
  if (found == object.end()) throw DataError(str(where, ": \"", printable(key), "\" is missing"));
  return *found;
}

std::string json_place(const std::string& where, const std::string& key) {
  return str(where, ": \"", printable(key), "\"");
}

template std::int64_t json_integer(const nlohmann::json&, const std::string&, std::int64_t, std::int64_t);
template std::int64_t json_integer(const OrderedJson&, const std::string&, std::int64_t, std::int64_t);
template double json_number(const nlohmann::json&, const std::string&, double, double);
template double json_number(const OrderedJson&, const std::string&, double, double);
template std::string json_text(const nlohmann::json&, const std::string&);
template std::string json_text(const OrderedJson&, const std::string&);
template bool json_boolean(const nlohmann::json&, const std::string&);
template bool json_boolean(const OrderedJson&, const std::string&);
template const nlohmann::json& json_list(const nlohmann::json&, const std::string&);
template const OrderedJson& json_list(const OrderedJson&, const std::string&);
template const nlohmann::json& json_object(const nlohmann::json&, const std::string&);
template const OrderedJson& json_object(const OrderedJson&, const std::string&);
template const nlohmann::json& json_member(const nlohmann::json&, const std::string&, const std::string&);
template const OrderedJson& json_member(const OrderedJson&, const std::string&, const std::string&);

}  // namespace rondo
