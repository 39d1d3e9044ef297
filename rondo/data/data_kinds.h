#pragma once

#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

#include "rondo/data/image/image_options.h"
#include "rondo/data/text_options.h"
#include "rondo/data/token_options.h"
#include "rondo/options/declaration.h"

namespace rondo {

struct DataOptions;
struct OpenedData;

// Data kinds without options of their own, or with options that several kinds share.

// The kind idx: MNIST's format. A directory with train-images-idx3-ubyte and train-labels-idx1-ubyte (and
// t10k-images-..., t10k-labels-... for validation; "." instead of "-" before idx is accepted), or one images
// file with its labels file in the same folder.
struct IdxKind {
  using Options = NoOptions;
  static std::vector<Declaration> declarations() { return {{"idx", "labelled images in MNIST's format"}}; }
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

// The kinds cifar10 and cifar100: a directory as unpacked from the archive (data_batch_1.bin ... and
// test_batch.bin, or train.bin and test.bin), the directory above it, or one file. Uses every
// data_batch_N.bin that exists.
struct CifarKind {
  using Options = NoOptions;
  static std::vector<Declaration> declarations() {
    return {{"cifar10", "small colour images, 10 classes (binary version)"},
            {"cifar100", "small colour images, 100 classes (binary version)"}};
  }
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

// The kinds csv and regression: a CSV or TSV file, or a folder with only such files. Each row has a class, or
// a number to predict, in the label column, by default the last. Features are standardised with the mean and
// deviation of the training rows.
struct CsvKind {
  using Options = LabelColumnOption;
  static std::vector<Declaration> declarations() {
    return {{"csv", "a table of numbers with a class for each row", label_column_table()},
            {"regression", "a table of numbers with a number to predict for each row", label_column_table()}};
  }
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

// The kind labelled_text: a file of labelled texts. Requires DataOptions::vocabulary_file. The label column
// is the first by default. Validation is a random part.
struct LabelledTextKind {
  using Options = LabelColumnOption;
  static std::vector<Declaration> declarations() {
    return {{"labelled_text", "texts with a class each, for bert", label_column_table()}};
  }
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

// The kind masked_text: a file or directory of text (read like the kind text). Requires
// DataOptions::vocabulary_file. Validation is the tail.
struct MaskedTextKind {
  using Options = ExtensionsOption;
  static std::vector<Declaration> declarations() {
    return {{"masked_text", "texts with hidden tokens, for bert", extensions_table()}};
  }
  static bool detect(const std::string& name, const std::string& path);
  static OpenedData open(const std::string& name, const std::string& path, const DataOptions& options,
                         const Options& own);
};

// The kinds of data, in the order in which "auto" tries them: the strictest formats first, text last. Each
// kind has
// Options                          the options struct of its kinds
// declarations()                   names, summaries and flags; does not need libtorch to link
// detect(name, path)               whether the content at `path` is of the named kind; does not throw
// for unknown content
// open(name, path, options, own)   like open_data(), with the kind's own options
using DataKinds = std::tuple<TokensKind, IdxKind, CifarKind, WebDatasetKind, ImageFolderKind, CsvKind,
                             LabelledTextKind, MaskedTextKind, TextKind>;

// Calls visit(kind) for each of DataKinds, in order.
template <class Visit>
void for_each_data_kind(const Visit& visit) {
  std::apply([&](auto... kinds) { (visit(kinds), ...); }, DataKinds());
}

namespace detail {

// A tuple of the types without duplicates.
template <class Tuple, class... Types>
struct Distinct {
  using Type = Tuple;
};
template <class... Found, class Next, class... Types>
struct Distinct<std::tuple<Found...>, Next, Types...>
    : Distinct<std::conditional_t<(std::is_same_v<Found, Next> || ...), std::tuple<Found...>,
                                  std::tuple<Found..., Next>>,
               Types...> {};
template <class Kinds>
struct OptionsOfKinds;
template <class... Kinds>
struct OptionsOfKinds<std::tuple<Kinds...>> : Distinct<std::tuple<>, typename Kinds::Options...> {};

}  // namespace detail

// The options structs of all kinds, without duplicates.
using AllKindOptions = detail::OptionsOfKinds<DataKinds>::Type;

}  // namespace rondo
