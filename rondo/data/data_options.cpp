#include "rondo/data/data_options.h"

namespace rondo {
namespace {

// The options of a struct that DataOptions has as a member, as options of DataOptions.
template <class Member>
OptionsOf<DataOptions> options_of_member(Member DataOptions::*member, const OptionsOf<Member>& table) {
  OptionsOf<DataOptions> result;
  result.begin_group("Data");
  for (Option option : table.options()) {
    option.set = [member, set = option.set](void* options, const std::string& text, const std::string& what) {
      set(&(OptionsOf<DataOptions>::of(options).*member), text, what);
    };
    option.text = [member, text = option.text](const void* options) {
      return text(&(OptionsOf<DataOptions>::of(options).*member));
    };
    result.add(std::move(option));
  }
  return result;
}

}  // namespace

std::vector<Declaration> declared_data_kinds() {
  OptionsOf<DataOptions> all;
  all.begin_group("Data");
  all.add("label-column", &DataOptions::label_column,
          "Name or number of the label column; default the last of tables, the first of labelled_text");
  all.add("extensions", &DataOptions::extensions,
          "Only files with these endings, as txt,md; default all text files");
  all.add("tokenizer", &DataOptions::tokenizer_file,
          "A tokenizer.json of byte pairs (GPT-2, Llama, Qwen); default: tokens are bytes", path_to_read());
  const auto none = all.only({});
  const OptionsOf<ImageOptions> of_images = declared_image_options();
  return {
      {"cifar10", "small colour images, 10 classes (binary version)", none},
      {"cifar100", "small colour images, 100 classes (binary version)", none},
      {"csv", "a table of numbers with a class for each row", all.only({"label-column"})},
      {"idx", "labelled images in MNIST's format", none},
      {"image_folder", "JPEG and PNG files in a folder for each class",
       options_of_member(&DataOptions::images, without_window(of_images))},
      {"labelled_text", "texts with a class each, for bert", all.only({"label-column", "extensions"})},
      {"masked_text", "texts with hidden tokens, for bert", all.only({"extensions"})},
      {"regression", "a table of numbers with a number to predict for each row", all.only({"label-column"})},
      {"text", "files and directories, byte by byte or by a tokenizer, for gpt",
       all.only({"extensions", "tokenizer"})},
      {"tokens", "files of tokens, mapped: what rondo tokenize writes, for gpt",
       options_of_member(&DataOptions::tokens, declared_token_options())},
      {"webdataset", "tar files of images with their classes",
       options_of_member(&DataOptions::images, of_images)},
  };
}

}  // namespace rondo
