// JPEG decoding with libjpeg-turbo.
// clang-format off
#include <cstdio>  // libjpeg's headers need it, and this order
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <array>
#include <cmath>
#include <csetjmp>

#include "rondo/base/error.h"
#include "rondo/base/text.h"
#include "rondo/data/image/decode.h"

namespace rondo {
namespace {

// Size of the end of a file that is searched for the end-of-image marker; other programs may have appended
// data after it.
constexpr std::size_t kTail = 4096;

struct JpegFailure {
  jpeg_error_mgr manager;  // first: libjpeg only passes the address of this member
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
  bool damaged;
};

JpegFailure& failure_of(j_common_ptr info) { return *reinterpret_cast<JpegFailure*>(info->err); }

extern "C" void leave_libjpeg(j_common_ptr info) {
  info->err->format_message(info, failure_of(info).message.data());
  std::longjmp(failure_of(info).back, 1);
}

// Returns whether a warning means damage. libjpeg fills missing data with grey and continues.
bool means_damage(int code) {
  return code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
         code == JWRN_ARITH_BAD_CODE || code == JWRN_MUST_RESYNC || code == JWRN_BOGUS_PROGRESSION;
}

extern "C" void note_of_libjpeg(j_common_ptr info, int level) {
  JpegFailure& failure = failure_of(info);
  if (level >= 0 || failure.damaged || !means_damage(info->err->msg_code)) return;
  info->err->format_message(info, failure.message.data());
  failure.damaged = true;
}

// A libjpeg decompressor. libjpeg leaves its functions by longjmp when a file is damaged, so they are called
// only from functions without objects that need destruction.
class JpegReader {
 public:
  explicit JpegReader(std::span<const std::uint8_t> file) : file_(file) {
    info_.value.err = jpeg_std_error(&failure_.manager);
    failure_.manager.error_exit = leave_libjpeg;
    failure_.manager.emit_message = note_of_libjpeg;
    guarded([](JpegReader& self) {
      jpeg_create_decompress(&self.info());
      jpeg_mem_src(&self.info(), self.file_.data(), self.file_.size());
      jpeg_read_header(&self.info(), TRUE);
    });
    check_image_size(info().image_width, info().image_height);
  }

  DecodedPart read(const DecodeRequest& request) {
    const ImageBox box =
        request.choose(static_cast<int>(info().image_width), static_cast<int>(info().image_height));
    choose_scale(box, request);
    guarded([](JpegReader& self) { jpeg_start_decompress(&self.info()); });
    const double x = static_cast<double>(info().output_width) / info().image_width;
    const double y = static_cast<double>(info().output_height) / info().image_height;
    top_ = static_cast<JDIMENSION>(std::floor(box.top * y));
    bottom_ = std::min(info().output_height, static_cast<JDIMENSION>(std::ceil((box.top + box.height) * y)));
    left_ = static_cast<JDIMENSION>(std::floor(box.left * x));
    width_ =
        std::min(info().output_width, static_cast<JDIMENSION>(std::ceil((box.left + box.width) * x))) - left_;
    // libjpeg moves the left edge to a block boundary, which only widens the part.
    guarded([](JpegReader& self) { jpeg_crop_scanline(&self.info(), &self.left_, &self.width_); });
    row_bytes_ = std::size_t{width_} * static_cast<std::size_t>(info().output_components);
    pixels_.resize(row_bytes_ * (bottom_ - top_));
    to_the_end_ = !ends_as_a_whole_file();
    if (to_the_end_) unwanted_.resize(row_bytes_);
    guarded(read_rows);
    if (failure_.damaged) throw DataError(failure_.message.data());
    DecodedPart part{.width = static_cast<int>(width_), .height = static_cast<int>(bottom_ - top_)};
    part.left = box.left * x - left_;
    part.top = box.top * y - top_;
    part.box_width = box.width * x;
    part.box_height = box.height * y;
    if (info().out_color_space == JCS_CMYK) convert_cmyk();
    part.pixels = std::move(pixels_);
    return part;
  }

 private:
  struct Owned {
    jpeg_decompress_struct value{};
    ~Owned() { jpeg_destroy_decompress(&value); }
  };

  jpeg_decompress_struct& info() { return info_.value; }

  // Not inlined: the callee may return to setjmp a second time.
  [[gnu::noinline]] void guarded(void (*calls)(JpegReader&)) {
    if (setjmp(failure_.back) != 0) throw DataError(failure_.message.data());
    calls(*this);
  }

  void choose_scale(const ImageBox& box, const DecodeRequest& request) {
    const bool is_cmyk = info().jpeg_color_space == JCS_CMYK || info().jpeg_color_space == JCS_YCCK;
    info().out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
    info().scale_denom = 8;
    info().scale_num = 8;
    for (const unsigned eighths : {1U, 2U, 4U}) {
      const int least = std::min(box.width, box.height) * static_cast<int>(eighths) / 8;
      if (!request.may_scale || least < request.size) continue;
      info().scale_num = eighths;
      return;
    }
  }

  bool ends_as_a_whole_file() const {
    const std::array<std::uint8_t, 2> end = {0xff, 0xd9};
    const auto tail = file_.last(std::min(file_.size(), kTail));
    return std::search(tail.begin(), tail.end(), end.begin(), end.end()) != tail.end();
  }

  // Decodes the rows below the box only if the file may be truncated.
  static void read_rows(JpegReader& self) {
    if (self.top_ > 0) jpeg_skip_scanlines(&self.info(), self.top_);
    while (self.info().output_scanline < self.bottom_) {
      JSAMPROW row = self.pixels_.data() + self.row_bytes_ * (self.info().output_scanline - self.top_);
      jpeg_read_scanlines(&self.info(), &row, 1);
    }
    // Reads instead of skipping: libjpeg skips to the end without checking.
    while (self.to_the_end_ && self.info().output_scanline < self.info().output_height) {
      JSAMPROW row = self.unwanted_.data();
      jpeg_read_scanlines(&self.info(), &row, 1);
    }
    jpeg_abort_decompress(&self.info());
  }

  // Adobe's programs store inverted ink values.
  void convert_cmyk() {
    const bool inverted = info().saw_Adobe_marker != 0;
    std::vector<std::uint8_t> rgb(pixels_.size() / 4 * 3);
    for (std::size_t i = 0; i < pixels_.size() / 4; ++i) {
      const std::uint8_t* ink = pixels_.data() + 4 * i;
      const int black = inverted ? ink[3] : 255 - ink[3];
      for (std::size_t c = 0; c < 3; ++c)
        rgb[3 * i + c] = static_cast<std::uint8_t>((inverted ? ink[c] : 255 - ink[c]) * black / 255);
    }
    pixels_ = std::move(rgb);
  }

  std::span<const std::uint8_t> file_;
  JpegFailure failure_{};
  Owned info_;
  JDIMENSION top_ = 0, bottom_ = 0, left_ = 0, width_ = 0;  // the part, in decoded pixels
  std::size_t row_bytes_ = 0;
  bool to_the_end_ = false;
  std::vector<std::uint8_t> pixels_, unwanted_;
};

}  // namespace

DecodedPart decode_jpeg(std::span<const std::uint8_t> file, const DecodeRequest& request) {
  return JpegReader(file).read(request);
}

}  // namespace rondo
