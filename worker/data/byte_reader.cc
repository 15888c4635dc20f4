#include "worker/data/byte_reader.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "common/base/error.h"

namespace muster {
namespace {

constexpr int64_t kMostExpansion = 1032;

bool IsGzip(std::span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

}  // namespace

// zlib's inflate over the whole mapped file; zlib itself checks checksum and size.
class ByteReader::Inflater {
 public:
  explicit Inflater(const MappedFile& file) : file_(file) {
    constexpr int kGzip = 16;  // added to the window's size: expect a gzip header
    if (inflateInit2(&stream_, MAX_WBITS + kGzip) != Z_OK) {
      throw Error(ExitCode::kFailure, "cannot start zlib: out of memory");
    }
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;

  size_t Read(std::span<uint8_t> to) {
    size_t got = 0;
    while (got < to.size() && !ended_) got += Some(to.subspan(got));
    return got;
  }

 private:
  // Calls inflate once, limited by its 32-bit counters.
  size_t Some(std::span<uint8_t> to) {
    const std::span<const uint8_t> rest = file_.bytes().subspan(used_);
    const size_t most = std::numeric_limits<uInt>::max();
    stream_.next_in = const_cast<uint8_t*>(rest.data());
    stream_.avail_in = static_cast<uInt>(std::min(rest.size(), most));
    stream_.next_out = to.data();
    stream_.avail_out = static_cast<uInt>(std::min(to.size(), most));
    const int result = inflate(&stream_, Z_NO_FLUSH);
    used_ += static_cast<size_t>(stream_.next_in - rest.data());
    const size_t got = static_cast<size_t>(stream_.next_out - to.data());
    if (result == Z_STREAM_END) {
      EndMember();
    } else if (result == Z_BUF_ERROR || (result == Z_OK && got == 0 && stream_.avail_in == 0)) {
      throw Error(ExitCode::kData,
                  "{}: truncated gzip file: the compressed data ends after {} bytes", file_.path(),
                  file_.bytes().size());
    } else if (result != Z_OK) {
      throw Error(ExitCode::kData, "{}: damaged gzip data near byte {}: {}", file_.path(), used_,
                  stream_.msg != nullptr ? stream_.msg : zError(result));
    }
    return got;
  }

  // A gzip file consists of one or more compressed members.
  void EndMember() {
    const std::span<const uint8_t> rest = file_.bytes().subspan(used_);
    if (rest.empty()) {
      ended_ = true;
    } else if (IsGzip(rest)) {
      inflateReset(&stream_);
    } else {
      throw Error(ExitCode::kData, "{}: expected the end of the gzip data, found {} more bytes",
                  file_.path(), rest.size());
    }
  }

  const MappedFile& file_;
  z_stream stream_ = {};
  size_t used_ = 0;
  bool ended_ = false;
};

ByteReader::ByteReader(const std::string& path) : file_(path) {
  if (IsGzip(file_.bytes())) inflater_ = std::make_unique<Inflater>(file_);
}

ByteReader::~ByteReader() = default;

int64_t ByteReader::MostBytes() const {
  return static_cast<int64_t>(file_.bytes().size()) * (compressed() ? kMostExpansion : 1);
}

size_t ByteReader::Read(std::span<uint8_t> to) {
  if (compressed()) return inflater_->Read(to);
  const size_t count = std::min(to.size(), file_.bytes().size() - at_);
  if (count > 0) std::memcpy(to.data(), file_.bytes().data() + at_, count);
  at_ += count;
  return count;
}

}  // namespace muster
