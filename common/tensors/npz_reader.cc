#include "common/tensors/npz_reader.h"

#include <fmt/core.h>
#include <minizip/unzip.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <string_view>
#include <type_traits>

#include "common/base/error.h"
#include "common/base/fd.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"
#include "common/tensors/npy_header.h"

namespace muster {
namespace {

constexpr size_t kPiece = 1 << 20;
constexpr uint64_t kMostExpansion = 1032;  // deflate's limit
constexpr size_t kMostHeaderBytes = 1 << 16;

// The zip format's numbers.
std::string MethodName(uLong method) {
  switch (method) {
    case 9:
      return "Deflate64";
    case 12:
      return "bzip2";
    case 14:
      return "LZMA";
    case 93:
      return "Zstandard";
    case 95:
      return "XZ";
    default:
      return fmt::format("method {}", method);
  }
}

}  // namespace

std::string NpzArray::Text() const {
  return fmt::format("{} [{}]", NumpyName(type), Join(shape, ", "));
}

// The archive as minizip sees it. The callbacks return errors, because exceptions must not pass
// through minizip.
class NpzReader::Archive {
 public:
  explicit Archive(const std::string& path)
      : path_(path), fd_(OpenPlainFile(path, "a NumPy archive (.npz)")) {
    struct stat status {};
    if (!fd_.valid() || ::fstat(fd_.get(), &status) != 0) {
      throw Error(ExitCode::kData, "{}: cannot be read: {}", path, ErrorText(errno));
    }
    size_ = static_cast<uint64_t>(status.st_size);
    zlib_filefunc64_def functions{
        .zopen64_file = [](void* self, const void*, int) { return self; },
        .zread_file = ReadFile,
        .zwrite_file = nullptr,
        .ztell64_file = [](void* self, void*) -> ZPOS64_T { return Of(self).at_; },
        .zseek64_file = Seek,
        .zclose_file = [](void*, void*) { return 0; },
        .zerror_file = [](void*, void*) { return 0; },
        .opaque = this};
    zip_.reset(unzOpen2_64("", &functions));
    // Some versions of minizip open an archive without members and others do not.
    unz_global_info64 all{};
    if (zip_) (void)unzGetGlobalInfo64(zip_.get(), &all);
    if (all.number_entry == 0) {
      throw Error(ExitCode::kData,
                  "{}: expected a NumPy archive as numpy.savez writes it, found {}", path,
                  WhatItIs());
    }
    ListMembers();
  }

  const std::string& path() const { return path_; }
  const std::map<std::string, unz64_file_pos>& places() const { return places_; }

  // Opens the archive member of the array. Returns its size in bytes.
  uint64_t Enter(const std::string& name) {
    const auto found = places_.find(name);
    if (found == places_.end()) {
      std::vector<std::string> names;
      names.reserve(places_.size());
      for (const auto& [other, place] : places_) names.push_back(Shown(other));
      throw Error(ExitCode::kData,
                  "{}: expected an array {}, found {}; numpy.savez(file, x=x, y=y) sets the names",
                  path_, name, names.empty() ? "none" : Shown(Join(names, ", ")));
    }
    Require(unzGoToFilePos64(zip_.get(), &found->second) == UNZ_OK, name,
            "its archive entry is damaged");
    unz_file_info64 info;
    Require(
        unzGetCurrentFileInfo64(zip_.get(), &info, nullptr, 0, nullptr, 0, nullptr, 0) == UNZ_OK,
        name, "its archive entry is damaged");
    constexpr uLong kEncrypted = 1, kStored = 0, kDeflated = 8;
    if ((info.flag & kEncrypted) != 0) Fail(name, "it is encrypted, which is not supported");
    if (info.compression_method != kStored && info.compression_method != kDeflated) {
      Fail(name, fmt::format("it is compressed with {}, which is not supported: write it with "
                             "numpy.savez or numpy.savez_compressed",
                             MethodName(info.compression_method)));
    }
    const uint64_t expansion = info.compression_method == kStored ? 1 : kMostExpansion;
    Require(
        info.compressed_size <= size_ && info.uncompressed_size <= info.compressed_size * expansion,
        name,
        fmt::format("it claims to have {} bytes, compressed to {}, in a file of {} bytes",
                    info.uncompressed_size, info.compressed_size, size_));
    Require(unzOpenCurrentFile(zip_.get()) == UNZ_OK, name,
            "its local header in the archive is damaged");
    return info.uncompressed_size;
  }

  void Read(const std::string& name, std::span<std::byte> to) {
    while (!to.empty()) {
      const int got = unzReadCurrentFile(zip_.get(), to.data(),
                                         static_cast<unsigned>(std::min(to.size(), kPiece)));
      Require(got > 0, name, "its data is damaged or truncated");
      to = to.subspan(static_cast<size_t>(got));
    }
  }

  // Closes the member and verifies its checksum. Call after the last byte has been read.
  void Leave(const std::string& name) {
    Require(unzCloseCurrentFile(zip_.get()) == UNZ_OK, name, "its checksum does not match");
  }
  // Closes the member without verifying its checksum.
  void Abandon() { (void)unzCloseCurrentFile(zip_.get()); }

  [[noreturn]] void Fail(const std::string& name, const std::string& trouble) const {
    throw Error(ExitCode::kData, "{}: array {}: {}", path_, Shown(name), trouble);
  }

 private:
  static Archive& Of(void* self) { return *static_cast<Archive*>(self); }

  static uLong ReadFile(void* self, void*, void* to, uLong count) {
    Archive& archive = Of(self);
    uLong got = 0;
    while (got < count) {
      const ssize_t n = ::pread(archive.fd_.get(), static_cast<char*>(to) + got, count - got,
                                static_cast<off_t>(archive.at_));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      got += static_cast<uLong>(n);
      archive.at_ += static_cast<uint64_t>(n);
    }
    return got;
  }

  static long Seek(void* self, void*, ZPOS64_T offset, int origin) {
    Archive& archive = Of(self);
    const uint64_t from = origin == ZLIB_FILEFUNC_SEEK_SET   ? 0
                          : origin == ZLIB_FILEFUNC_SEEK_CUR ? archive.at_
                                                             : archive.size_;
    if (offset > archive.size_ || from > archive.size_ - offset) return -1;
    archive.at_ = from + offset;
    return 0;
  }

  void Require(bool holds, const std::string& name, const std::string& trouble) const {
    if (!holds) Fail(name, trouble + ". The file is damaged: write it again");
  }

  std::string WhatItIs() {
    std::array<char, 6> first{};
    at_ = 0;
    const std::string_view bytes(first.data(), ReadFile(this, nullptr, first.data(), first.size()));
    if (bytes == "\x93NUMPY") {
      return "an array without a name (numpy.save): write it with numpy.savez(file, x=x, y=y)";
    }
    if (bytes.starts_with("PK")) return "one that is truncated or has no arrays";
    return bytes.empty() ? "an empty file" : "something else";
  }

  void ListMembers() {
    for (int at = unzGoToFirstFile(zip_.get()); at != UNZ_END_OF_LIST_OF_FILE;
         at = unzGoToNextFile(zip_.get())) {
      unz_file_info64 info;
      unz64_file_pos place;
      std::array<char, 256> text{};
      if (at != UNZ_OK ||
          unzGetCurrentFileInfo64(zip_.get(), &info, text.data(), text.size() - 1, nullptr, 0,
                                  nullptr, 0) != UNZ_OK ||
          unzGetFilePos64(zip_.get(), &place) != UNZ_OK) {
        throw Error(ExitCode::kData, "{}: the archive's directory is damaged: write the file again",
                    path_);
      }
      const std::string_view name(text.data());
      if (!name.ends_with(".npy")) continue;
      if (places_.emplace(name.substr(0, name.size() - 4), place).second) continue;
      // NumPy reads the last one, other programs the first.
      throw Error(ExitCode::kData, "{}: holds {} more than once: write the file again", path_,
                  Shown(name));
    }
  }

  struct Close {
    void operator()(unzFile zip) const { (void)unzClose(zip); }
  };

  const std::string path_;
  const UniqueFd fd_;
  uint64_t size_ = 0, at_ = 0;
  std::unique_ptr<std::remove_pointer_t<unzFile>, Close> zip_;
  std::map<std::string, unz64_file_pos> places_;
};

NpzReader::NpzReader(const std::string& path) : archive_(std::make_unique<Archive>(path)) {}
NpzReader::~NpzReader() = default;

const std::string& NpzReader::path() const { return archive_->path(); }

bool NpzReader::Has(const std::string& name) const { return archive_->places().contains(name); }

NpzArray NpzReader::Describe(const std::string& name) const {
  const uint64_t bytes = archive_->Enter(name);
  constexpr std::string_view kMagic = "\x93NUMPY";
  std::string start(10, '\0');  // magic, version, and the first bytes of the header's length
  const auto read = [&](std::string& to, size_t from) {
    archive_->Read(name, std::as_writable_bytes(std::span(to).subspan(from)));
  };
  read(start, 0);
  const auto byte = [&](size_t at) { return static_cast<size_t>(static_cast<uint8_t>(start[at])); };
  const size_t version = byte(6);
  if (!start.starts_with(kMagic) || version < 1 || version > 3) {
    archive_->Fail(name, "expected an array in NumPy's format, version 1 to 3, found other bytes");
  }
  size_t length = byte(8) | byte(9) << 8;
  if (version > 1) {
    start.resize(12);
    read(start, 10);
    length |= byte(10) << 16 | byte(11) << 24;
  }
  if (length > kMostHeaderBytes) {
    archive_->Fail(name, fmt::format("expected a header of at most {} bytes, found {}",
                                     kMostHeaderBytes, length));
  }
  std::string text(length, '\0');
  read(text, 0);
  archive_->Abandon();
  const std::optional<NpyHeader> header = ReadNpyHeader(text);
  if (!header) archive_->Fail(name, "expected NumPy's header, found \"" + Shown(text, 200) + '"');
  const std::optional<TensorType> type = TypeOfNumpy(header->type);
  if (!type) {
    archive_->Fail(name, "expected plain numbers, found " + AdviceOnNumpyType(header->type, name));
  }
  if (header->fortran) {
    archive_->Fail(name, fmt::format("expected C order, found Fortran order: store "
                                     "numpy.ascontiguousarray({})",
                                     name));
  }
  NpzArray array{.name = name,
                 .type = *type,
                 .shape = header->shape,
                 .elements = 1,
                 .header_bytes = start.size() + length};
  const uint64_t room = (bytes - array.header_bytes) / BytesOf(*type);
  for (const int64_t extent : array.shape) {
    if (extent > 0 && array.elements > room / static_cast<uint64_t>(extent)) {
      array.elements = room + 1;  // too many, and safe from overflow
      break;
    }
    array.elements *= static_cast<uint64_t>(extent);
  }
  if (std::ranges::count(array.shape, 0) > 0) array.elements = 0;
  if (array.elements * BytesOf(*type) != bytes - array.header_bytes) {
    archive_->Fail(name, fmt::format("expected the bytes of {}, found {} bytes", array.Text(),
                                     bytes - array.header_bytes));
  }
  return array;
}

void NpzReader::Read(const NpzArray& array,
                     const std::function<void(std::span<const std::byte>)>& take) const {
  (void)archive_->Enter(array.name);
  std::vector<std::byte> piece(std::max(kPiece, array.header_bytes));
  archive_->Read(array.name, std::span(piece).first(array.header_bytes));
  for (uint64_t left = array.elements * BytesOf(array.type); left > 0;) {
    const auto part = std::span(piece).first(std::min<uint64_t>(left, kPiece));
    archive_->Read(array.name, part);
    left -= part.size();
    take(part);
  }
  archive_->Leave(array.name);
}

}  // namespace muster
