#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "rondo/base/json_strict.h"
#include "rondo/data/image/decode.h"
#include "tests/temporary_directory.h"

// An image of image_reference.json, which make_image_reference.py writes with Pillow.
namespace rondo::testing {

struct ReferenceImage {
  std::string name, file;
  std::vector<int> pixels;  // pixels of the part, colour by colour
};

struct ImageReference {
  int width = 0, height = 0, size = 0;
  ImageBox box = {};
  std::vector<ReferenceImage> images = {};

  const std::string& file(const std::string& name) const {
    for (const ReferenceImage& image : images) {
      if (image.name == name) return image.file;
    }
    throw std::runtime_error("no image " + name);
  }
};

inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

inline ImageReference read_image_reference() {
  const auto document =
      read_json_file(std::filesystem::path(RONDO_SOURCE_DIR) / "tests/data/image_reference.json");
  ImageReference reference{
      .width = document["width"], .height = document["height"], .size = document["size"]};
  const auto& box = document["box"];
  reference.box = {box[0].get<int>(), box[1].get<int>(), box[2].get<int>(), box[3].get<int>()};
  for (const auto& image : document["images"]) {
    reference.images.push_back({.name = image["name"].get<std::string>(),
                                .file = from_hex(image["file"].get<std::string>()),
                                .pixels = image["pixels"].get<std::vector<int>>()});
  }
  return reference;
}

}  // namespace rondo::testing
