// PNG decoding with libpng.
#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/image/decode.h"

namespace rondo {
namespace {

struct PngFailure {
  std::jmp_buf back;
  std::array<char, 200> message;
};

extern "C" void leave_libpng(png_structp png, png_const_charp message) {
  PngFailure& failure = *static_cast<PngFailure*>(png_get_error_ptr(png));
  std::snprintf(failure.message.data(), failure.message.size(), "%s", message);
  std::longjmp(failure.back, 1);
}

extern "C" void ignore_remark_of_libpng(png_structp /*png*/, png_const_charp /*message*/) {}

extern "C" void read_for_libpng(png_structp png, png_bytep to, png_size_t bytes) {
  auto& rest = *static_cast<std::span<const std::uint8_t>*>(png_get_io_ptr(png));
  if (bytes > rest.size()) png_error(png, "the file ends too early");
  std::memcpy(to, rest.data(), bytes);
  rest = rest.subspan(bytes);
}

// A libpng reader. libpng leaves its functions by longjmp when a file is damaged, so they are called only
// from functions without objects that need destruction.
class PngReader {
 public:
  explicit PngReader(std::span<const std::uint8_t> file) : rest_(file) {
    owned_.png =
        png_create_read_struct(PNG_LIBPNG_VER_STRING, &failure_, leave_libpng, ignore_remark_of_libpng);
    if (owned_.png == nullptr) throw std::bad_alloc();
    owned_.info = png_create_info_struct(owned_.png);
    if (owned_.info == nullptr) throw std::bad_alloc();
    guarded([](PngReader& self) {
      png_set_benign_errors(self.owned_.png, 1);
      png_set_read_fn(self.owned_.png, &self.rest_, read_for_libpng);
      png_read_info(self.owned_.png, self.owned_.info);
    });
    width_ = png_get_image_width(owned_.png, owned_.info);
    height_ = png_get_image_height(owned_.png, owned_.info);
    check_image_size(width_, height_);
  }

  DecodedPart read(const DecodeRequest& request) {
    box_ = request.choose(static_cast<int>(width_), static_cast<int>(height_));
    guarded(ask_for_rgb);
    if (png_get_rowbytes(owned_.png, owned_.info) != kColours * width_)
      throw DataError(str("rows of ", png_get_rowbytes(owned_.png, owned_.info), " bytes, expected ",
                          kColours, " for each of ", width_, " pixels"));
    DecodedPart part{.width = box_.width, .height = box_.height};
    part.box_width = box_.width;
    part.box_height = box_.height;
    pixels_.resize(kColours * static_cast<std::size_t>(box_.width) * static_cast<std::size_t>(box_.height));
    // Each pass of an interlaced image adds to the rows of the earlier passes.
    rows_.resize(kColours * width_ * (passes_ > 1 ? height_ : 1));
    guarded(read_rows);
    part.pixels = std::move(pixels_);
    return part;
  }

 private:
  static constexpr std::size_t kColours = 3;

  struct Owned {
    png_structp png = nullptr;
    png_infop info = nullptr;
    Owned() = default;
    ~Owned() { png_destroy_read_struct(&png, &info, nullptr); }
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
  };

  // Not inlined: libpng may return to setjmp a second time.
  [[gnu::noinline]] void guarded(void (*calls)(PngReader&)) {
    if (setjmp(failure_.back) != 0) throw DataError(failure_.message.data());
    calls(*this);
  }

  // Requests 8-bit RGB pixels: the high byte of 16 bits, no correction for the file's gamma or colour
  // profile, no background under transparent pixels.
  static void ask_for_rgb(PngReader& self) {
    png_structp png = self.owned_.png;
    png_set_strip_16(png);
    png_set_palette_to_rgb(png);
    png_set_expand_gray_1_2_4_to_8(png);
    png_set_gray_to_rgb(png);
    png_set_strip_alpha(png);
    self.passes_ = png_set_interlace_handling(png);
    png_read_update_info(png, self.owned_.info);
  }

  // Reads all rows, including those below the box, because the file may be truncated.
  static void read_rows(PngReader& self) {
    const std::size_t row_bytes = kColours * self.width_;
    for (int pass = 0; pass < self.passes_; ++pass) {
      for (std::size_t y = 0; y < self.height_; ++y) {
        std::uint8_t* row = self.rows_.data() + (self.passes_ > 1 ? y * row_bytes : 0);
        png_read_row(self.owned_.png, row, nullptr);
        if (pass + 1 == self.passes_) self.keep_row(y, row);
      }
    }
  }

  // Copies the pixels of a row that are inside the box.
  void keep_row(std::size_t y, const std::uint8_t* row) {
    const auto top = static_cast<std::size_t>(box_.top), bottom = top + static_cast<std::size_t>(box_.height);
    if (y < top || y >= bottom) return;
    const std::size_t bytes = kColours * static_cast<std::size_t>(box_.width);
    std::memcpy(pixels_.data() + (y - top) * bytes, row + kColours * static_cast<std::size_t>(box_.left),
                bytes);
  }

  PngFailure failure_{};
  std::span<const std::uint8_t> rest_;  // unread rest of the file
  Owned owned_;
  std::size_t width_ = 0, height_ = 0;
  ImageBox box_;
  int passes_ = 1;
  std::vector<std::uint8_t> rows_, pixels_;
};

}  // namespace

DecodedPart decode_png(std::span<const std::uint8_t> file, const DecodeRequest& request) {
  return PngReader(file).read(request);
}

}  // namespace rondo
