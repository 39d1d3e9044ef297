#pragma once

#include "rondo/data/cifar_options.h"
#include "rondo/data/csv_options.h"
#include "rondo/data/idx_options.h"
#include "rondo/data/image_folder_options.h"
#include "rondo/data/labelled_text_options.h"
#include "rondo/data/masked_text_options.h"
#include "rondo/data/text_options.h"
#include "rondo/data/token_options.h"
#include "rondo/data/web_dataset_options.h"

namespace rondo {

// Calls visit(kind) for the kinds of data, one line for each struct, in the order in which "auto" tries them:
// the strictest formats first, text last. Such a struct has
//   Options                          the options struct of its kinds
//   declarations()                   what they are called and can be told; who uses no more links no libtorch
//   detect(name, path)               whether the content at `path` is of the kind of that name; never throws
//                                    for content that it does not understand
//   open(name, path, options, own)   as open_data(), with the kind's own options
template <class Visit>
void for_each_data_kind(const Visit& visit) {
  visit(TokensKind());
  visit(IdxKind());
  visit(CifarKind());
  visit(WebDatasetKind());
  visit(ImageFolderKind());
  visit(CsvKind());
  visit(LabelledTextKind());
  visit(MaskedTextKind());
  visit(TextKind());
}

}  // namespace rondo
