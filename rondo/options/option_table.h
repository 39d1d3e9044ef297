#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <typeindex>
#include <utility>
#include <vector>

#include "rondo/base/bytes.h"
#include "rondo/options/option.h"

namespace rondo {

// Conversion between fields of options structs and text. A user-defined type takes part by defining
// read_option() and option_text() in its own namespace; its JSON type is text. read_option() throws
// UsageError naming `what`.
void read_option(const std::string& text, const std::string& what, bool& value);
void read_option(const std::string& text, const std::string& what, int& value);  // same for int
// same for std::int64_t
void read_option(const std::string& text, const std::string& what, std::int64_t& value);
// same for std::uint64_t
void read_option(const std::string& text, const std::string& what, std::uint64_t& value);
void read_option(const std::string& text, const std::string& what, double& value);  // same for double
// same for std::string
void read_option(const std::string& text, const std::string& what, std::string& value);
// Same for lists, separated by commas.
void read_option(const std::string& text, const std::string& what, std::vector<std::string>& value);
void read_option(const std::string& text, const std::string& what, Bytes& value);  // same for Bytes

std::string option_text(bool value);                             // text that read_option() accepts
std::string option_text(int value);                              // text that read_option() accepts
std::string option_text(std::int64_t value);                     // text that read_option() accepts
std::string option_text(std::uint64_t value);                    // text that read_option() accepts
std::string option_text(double value);                           // the shortest text that reads back exactly
std::string option_text(const std::string& value);               // text that read_option() accepts
std::string option_text(const std::vector<std::string>& value);  // text that read_option() accepts
std::string option_text(Bytes value);                            // exact: "4MiB", "1000"

namespace detail {

template <class Field>
struct OptionField {
  using Value = Field;
  static void read(const std::string& text, const std::string& what, Field& field) {
    read_option(text, what, field);
  }
  static std::optional<std::string> text(const Field& field) { return option_text(field); }
};
template <class Field>
struct OptionField<std::optional<Field>> {
  using Value = Field;
  static void read(const std::string& text, const std::string& what, std::optional<Field>& field) {
    read_option(text, what, field.emplace());
  }
  static std::optional<std::string> text(const std::optional<Field>& field) {
    return field ? std::optional(option_text(*field)) : std::nullopt;
  }
};

template <class Value>
constexpr OptionKind option_kind() {
  if constexpr (std::is_same_v<Value, bool>) return OptionKind::toggle;
  if constexpr (std::is_integral_v<Value>) return OptionKind::integer;
  if constexpr (std::is_floating_point_v<Value>) return OptionKind::number;
  if constexpr (std::is_same_v<Value, std::vector<std::string>>) return OptionKind::list;
  return OptionKind::text;
}

template <class Value>
constexpr const char* option_type() {
  if constexpr (std::is_same_v<Value, bool>) return "";
  if constexpr (std::is_integral_v<Value>) return "N";
  if constexpr (std::is_floating_point_v<Value>) return "X";
  if constexpr (std::is_same_v<Value, Bytes>) return "SIZE";
  if constexpr (std::is_same_v<Value, std::vector<std::string>>) return "A,B";
  return "TEXT";
}

}  // namespace detail

// The options of one struct without its static type, as a registry stores them for each entry. Copies share
// no mutable state. Concurrent reads are safe.
class OptionTable {
 public:
  const std::vector<Option>& options() const { return options_; }  // in the order of add()
  const Option* find(std::string_view name) const;                 // null if there is none

  std::type_index type() const { return type_; }  // type of the struct

  // Creates a struct with default values.
  std::shared_ptr<void> make() const { return make_(); }
  // Creates a struct with default values and sets `values`. Throws UsageError for an unknown option (naming
  // the known ones) and for an invalid value.
  std::shared_ptr<void> read(const OptionValues& values) const;
  // Returns whether `value` differs from the option's default. Throws like read().
  bool differs_from_default(const Option& option, const std::string& value) const;

 protected:
  // Called by OptionsOf.
  OptionTable(std::type_index type, std::function<std::shared_ptr<void>()> make)
      : type_(type), make_(std::move(make)) {}

  // Returns the option of this name. Throws Error if there is none.
  Option& require(const std::string& name);

  std::vector<Option> options_;  // in the order of add()

 private:
  std::type_index type_;
  std::function<std::shared_ptr<void>()> make_;
};

// Returns the C++ name of a type: "rondo::ShardedOptions".
std::string type_name(std::type_index type);

// Declaration of the fields of an options struct that can be set by name:
// OptionsOf<DdpOptions> table;
// table.add("bucket-size", &DdpOptions::bucket_bytes, "Gradients are reduced in buckets of this size");
template <class Struct>
class OptionsOf : public OptionTable {
 public:
  // Creates an empty table; defaults come from a default-constructed Struct.
  OptionsOf() : OptionTable(typeid(Struct), [] { return std::make_shared<Struct>(); }) {}

  // Adds a field of the struct or of one of its bases. Returns the option so that the caller can set type,
  // needs and is_common.
  template <class Field, class Owner>
  Option& add(const std::string& name, Field Owner::*field, const std::string& help,
              const AllowedValues& allowed = {}) {
    using Reader = detail::OptionField<Field>;
    using Value = typename Reader::Value;
    return add({.name = name,
                .help = help,
                .kind = detail::option_kind<Value>(),
                .type = detail::option_type<Value>(),
                .allowed = allowed,
                .set = [field](void* options, const std::string& text,
                               const std::string& what) { Reader::read(text, what, of(options).*field); },
                .text = [field](const void* options) { return Reader::text(of(options).*field); }});
  }

  // Adds an option with custom set() and text() functions; they obtain the struct with of().
  Option& add(Option option) {
    option.group = group_;
    option.default_text = option.text(&defaults_);
    if (!option.allowed.type.empty()) option.type = option.allowed.type;
    options_.push_back(std::move(option));
    return options_.back();
  }

  // Adds the options of a base of the struct, so that structs with this base share one declaration.
  template <class Base>
  void include(const OptionsOf<Base>& table) {
    for (Option option : table.options()) {
      option.set = [set = option.set](void* options, const std::string& text, const std::string& what) {
        set(static_cast<Base*>(&of(options)), text, what);
      };
      option.text = [text = option.text](const void* options) {
        return text(static_cast<const Base*>(&of(options)));
      };
      options_.push_back(std::move(option));
    }
  }

  // Adds the options of a member of the struct. Keeps the defaults of the member's own type.
  template <class Part>
  void include(const OptionsOf<Part>& table, Part Struct::*part) {
    for (Option option : table.options()) {
      option.set = [set = option.set, part](void* options, const std::string& text, const std::string& what) {
        set(&(of(options).*part), text, what);
      };
      option.text = [text = option.text, part](const void* options) { return text(&(of(options).*part)); };
      options_.push_back(std::move(option));
    }
  }

  // Returns a table of the same struct with only these options.
  OptionsOf only(const std::vector<std::string>& names) const {
    OptionsOf result;
    for (const std::string& name : names) result.options_.push_back(*find(name));
    return result;
  }

  // Removes the flags of these options: only --set and configuration files can set them. Throws Error for an
  // unknown name.
  void without_flags(const std::vector<std::string>& names) {
    for (const std::string& name : names) require(name).has_flag = false;
  }

  // Sets the help heading of options that are added later.
  void begin_group(std::string group) { group_ = std::move(group); }

  // Casts the argument of an Option's functions to the struct.
  static Struct& of(void* options) { return *static_cast<Struct*>(options); }
  // same for const
  static const Struct& of(const void* options) { return *static_cast<const Struct*>(options); }

 private:
  Struct defaults_{};
  std::string group_;
};

// Options of an entry without options.
struct NoOptions {};

}  // namespace rondo
