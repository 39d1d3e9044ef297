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

// Fields of options structs as texts. A type of one's own takes part with a read_option() and an
// option_text() beside it, and is text in JSON. Throw UsageError naming `what`.
void read_option(const std::string& text, const std::string& what, bool& value);
void read_option(const std::string& text, const std::string& what, int& value);            // likewise
void read_option(const std::string& text, const std::string& what, std::int64_t& value);   // likewise
void read_option(const std::string& text, const std::string& what, std::uint64_t& value);  // likewise
void read_option(const std::string& text, const std::string& what, double& value);         // likewise
void read_option(const std::string& text, const std::string& what, std::string& value);    // likewise
// Likewise.
void read_option(const std::string& text, const std::string& what, std::vector<std::string>& value);
void read_option(const std::string& text, const std::string& what, Bytes& value);  // likewise

std::string option_text(bool value);                             // as read_option() reads it
std::string option_text(int value);                              // as read_option() reads it
std::string option_text(std::int64_t value);                     // as read_option() reads it
std::string option_text(std::uint64_t value);                    // as read_option() reads it
std::string option_text(double value);                           // the shortest that reads back the same
std::string option_text(const std::string& value);               // as read_option() reads it
std::string option_text(const std::vector<std::string>& value);  // as read_option() reads it
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

// The options of one struct, whichever it is: what a registry keeps of each entry. Copies share nothing that
// changes; any thread may read one.
class OptionTable {
 public:
  const std::vector<Option>& options() const { return options_; }  // in the order of add()
  const Option* find(std::string_view name) const;                 // null when there is none

  std::type_index type() const { return type_; }  // of the struct

  // A struct with its defaults.
  std::shared_ptr<void> make() const { return make_(); }
  // A struct with these values in place of its defaults. Throws UsageError: of an option that the struct
  // lacks, naming those it has, and of a value that cannot be.
  std::shared_ptr<void> read(const OptionValues& values) const;
  // Whether a value says something else than the default. Throws as read().
  bool differs_from_default(const Option& option, const std::string& value) const;

 protected:
  // For OptionsOf.
  OptionTable(std::type_index type, std::function<std::shared_ptr<void>()> make)
      : type_(type), make_(std::move(make)) {}

  // The option of this name. Throws Error when there is none.
  Option& require(const std::string& name);

  std::vector<Option> options_;  // in the order of add()

 private:
  std::type_index type_;
  std::function<std::shared_ptr<void>()> make_;
};

// As C++ writes it: "rondo::ShardedOptions".
std::string type_name(std::type_index type);

// Where a folder declares which fields of its options struct can be set by name:
//   OptionsOf<DdpOptions> table;
//   table.add("bucket-size", &DdpOptions::bucket_bytes, "Gradients are reduced in buckets of this size");
template <class Struct>
class OptionsOf : public OptionTable {
 public:
  // Of a struct with its defaults.
  OptionsOf() : OptionTable(typeid(Struct), [] { return std::make_shared<Struct>(); }) {}

  // Adds a field of the struct or of one of its bases. What comes back is for what an option may have
  // besides: type, needs, is_common.
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

  // Adds an option whose set() and text() do something of their own; of() is their struct.
  Option& add(Option option) {
    option.group = group_;
    option.default_text = option.text(&defaults_);
    if (!option.allowed.type.empty()) option.type = option.allowed.type;
    options_.push_back(std::move(option));
    return options_.back();
  }

  // Takes over the options of a base of the struct: one declaration for all that share it.
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

  // Takes over the options of a member of the struct, with the defaults that the member's own struct has.
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

  // The same struct with these options only.
  OptionsOf only(const std::vector<std::string>& names) const {
    OptionsOf result;
    for (const std::string& name : names) result.options_.push_back(*find(name));
    return result;
  }

  // Takes the flags of these options away: they are set by --set and configuration files alone. Throws Error
  // for a name that the table lacks.
  void without_flags(const std::vector<std::string>& names) {
    for (const std::string& name : names) require(name).has_flag = false;
  }

  // Heading of the options that are added from here on.
  void begin_group(std::string group) { group_ = std::move(group); }

  // What the functions of an Option take.
  static Struct& of(void* options) { return *static_cast<Struct*>(options); }
  static const Struct& of(const void* options) { return *static_cast<const Struct*>(options); }  // likewise

 private:
  Struct defaults_{};
  std::string group_;
};

// Of what has no options.
struct NoOptions {};

}  // namespace rondo
