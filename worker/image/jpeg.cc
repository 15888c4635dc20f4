#include <csetjmp>
#include <cstddef>
#include <cstdio>
// jpeglib.h needs size_t and FILE.
#include <jerror.h>
#include <jpeglib.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/error.h"
#include "worker/image/exif.h"
#include "worker/image/file_kinds.h"

namespace muster {
namespace {

// A block of 8x8 pixels takes at least one bit, so one byte holds at most this many pixels.
constexpr int64_t kMaxPixelsPerByte = 512;
// Each scan of a progressive file is work for the whole image. Encoders write 10 to 20 scans.
constexpr int kMaxScans = 200;
// Chroma upsampling reads neighbouring pixels, which are missing at the edge of a decoded part.
constexpr int64_t kContext = 2;
constexpr std::string_view kXmpName("http://ns.adobe.com/xap/1.0/\0", 29);

// libjpeg reports errors through a function that must not return.
struct JpegErrors {
  jpeg_error_mgr base{};  // first, because libjpeg passes a pointer to it
  std::jmp_buf jump{};
  char error[JMSG_LENGTH_MAX] = "", first_warning[JMSG_LENGTH_MAX] = "";
};

JpegErrors& ErrorsOf(j_common_ptr common) { return *reinterpret_cast<JpegErrors*>(common->err); }

[[noreturn]] void OnError(j_common_ptr common) {
  JpegErrors& errors = ErrorsOf(common);
  common->err->format_message(common, errors.error);
  std::longjmp(errors.jump, 1);
}

// `level` is -1 for a warning. Truncated files, which libjpeg would fill with grey, are rejected.
void OnMessage(j_common_ptr common, int level) {
  if (level >= 0) return;
  if (common->err->msg_code == JWRN_JPEG_EOF) OnError(common);
  JpegErrors& errors = ErrorsOf(common);
  if (common->err->num_warnings++ == 0) common->err->format_message(common, errors.first_warning);
}

void OnProgress(j_common_ptr common) {
  if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number <= kMaxScans) return;
  JpegErrors& errors = ErrorsOf(common);
  std::snprintf(errors.error, sizeof errors.error, "more than %d scans", kMaxScans);
  std::longjmp(errors.jump, 1);
}

// A JPEG file being read. Each file needs a new Decompressor: tables defined by one file must not
// be used for another that lacks them.
class Decompressor {
 public:
  explicit Decompressor(std::span<const uint8_t> bytes) : Decompressor() {
    Try([&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, bytes.data(), bytes.size());
      jpeg_save_markers(&info_, JPEG_APP0 + 1, 0xFFFF);
      jpeg_read_header(&info_, TRUE);
    });
    const int components = info_.num_components;
    if (components != 1 && components != 3 && components != 4) {
      throw Error(ExitCode::kData, "expected a JPEG with 1, 3 or 4 colour components, found {}",
                  components);
    }
  }
  ~Decompressor() { jpeg_destroy_decompress(&info_); }
  Decompressor(const Decompressor&) = delete;

  jpeg_decompress_struct& info() { return info_; }

  // Runs libjpeg calls and converts their errors to Error. `work` must not hold an object with a
  // destructor during a libjpeg call.
  template <typename Work>
  void Try(const Work& work) {
    if (setjmp(errors_.jump) != 0) {
      throw Error(ExitCode::kData, "this JPEG cannot be decoded: {}", errors_.error);
    }
    work();
  }

  DecodeWarnings Warnings() const {
    return {.count = errors_.base.num_warnings, .first = errors_.first_warning};
  }

 private:
  Decompressor() {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = OnError;
    errors_.base.emit_message = OnMessage;
    progress_.progress_monitor = OnProgress;
  }

  jpeg_decompress_struct info_{};
  JpegErrors errors_;
  jpeg_progress_mgr progress_{};
};

// x * y / 255, rounded, for x and y in 0 … 255.
uint8_t Scaled(uint32_t x, uint32_t y) {
  const uint32_t product = x * y + 128;
  return static_cast<uint8_t>((product + (product >> 8)) >> 8);
}

// Copies a part of a row as libjpeg returned it.
void StoreRow(const jpeg_decompress_struct& info, const uint8_t* row, int64_t count,
              int64_t channels, uint8_t* out) {
  if (info.out_color_space != JCS_CMYK) {
    std::copy_n(row, count * channels, out);
    return;
  }
  for (int64_t i = 0; i < count; ++i, row += 4, out += channels) {
    uint8_t rgb[3];
    for (int k = 0; k < 3; ++k) rgb[k] = Scaled(row[k], row[3]);
    StoreRgb(rgb, 1, channels, out);
  }
}

}  // namespace

ImageHeader ReadJpegHeader(std::span<const uint8_t> bytes) {
  Decompressor file(bytes);
  const jpeg_decompress_struct& info = file.info();
  ImageHeader header;
  header.info = {.kind = ImageKind::kJpeg, .stored = {info.image_height, info.image_width}};
  if (!info.arith_code) {  // arithmetic coding has no such limit
    header.least_bytes = header.info.stored.height * header.info.stored.width / kMaxPixelsPerByte;
  }
  // EXIF and XMP share a marker. A large EXIF is continued in the next one.
  std::vector<uint8_t> exif;
  std::string_view xmp;
  for (auto* marker = info.marker_list; marker != nullptr; marker = marker->next) {
    const std::string_view text(reinterpret_cast<const char*>(marker->data), marker->data_length);
    if (text.starts_with(kExifName)) {
      exif.insert(exif.end(), marker->data + kExifName.size(), marker->data + text.size());
    }
    if (text.starts_with(kXmpName)) xmp = text.substr(kXmpName.size());
  }
  header.info.orientation = Orientation(exif, xmp);
  return header;
}

DecodeWarnings ReadJpeg(std::span<const uint8_t> bytes, int64_t reduction, const ImageBox& box,
                        int64_t channels, DecodeScratch& scratch, uint8_t* pixels) {
  Decompressor file(bytes);
  jpeg_decompress_struct& info = file.info();
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(reduction);
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
  info.do_block_smoothing = FALSE;
  info.out_color_space = info.num_components == 4 ? JCS_CMYK
                         : channels == 1          ? JCS_GRAYSCALE
                                                  : JCS_RGB;
  file.Try([&] { jpeg_start_decompress(&info); });
  MUSTER_CHECK(box.top + box.height <= info.output_height);
  MUSTER_CHECK(box.left + box.width <= info.output_width);

  // libjpeg moves the first column to the left, to the start of a block.
  auto first = static_cast<JDIMENSION>(std::max<int64_t>(box.left - kContext, 0));
  auto width = static_cast<JDIMENSION>(
      std::min<int64_t>(box.left + box.width + kContext, info.output_width) - first);
  const auto skipped = static_cast<JDIMENSION>(std::max<int64_t>(box.top - kContext, 0));
  // libjpeg-turbo 2.1 upsamples too few columns of 4:1:0 when it both reduces and crops.
  const bool crops = reduction == 1 || info.max_h_samp_factor <= 2;
  if (!crops) first = 0;
  file.Try([&] {
    if (crops && width < info.output_width) jpeg_crop_scanline(&info, &first, &width);
    if (skipped > 0) jpeg_skip_scanlines(&info, skipped);
  });
  scratch.row.resize(static_cast<size_t>(info.output_width) * info.output_components);
  uint8_t* row = scratch.row.data();
  const uint8_t* part = row + (box.left - first) * info.output_components;
  file.Try([&] {
    while (info.output_scanline < box.top + box.height) {
      const int64_t at = int64_t{info.output_scanline} - box.top;
      jpeg_read_scanlines(&info, &row, 1);
      if (at >= 0) StoreRow(info, part, box.width, channels, pixels + at * box.width * channels);
    }
  });
  return file.Warnings();
}

}  // namespace muster
