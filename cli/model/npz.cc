#include "cli/model/npz.h"

#include <fmt/core.h>
#include <minizip/zip.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <vector>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/text.h"
#include "common/tensors/npy_header.h"

namespace muster {
namespace {

// The output of minizip, which seeks back to write the checksum of a complete entry. Exceptions
// must not pass through its C code, so they are stored in `failure`.
class Sink {
 public:
  explicit Sink(const std::string& path) : file(path) {}

  zlib_filefunc64_def Functions() {
    return {.zopen64_file = [](void* self, const void*, int) { return self; },
            .zread_file = nullptr,
            .zwrite_file = Write,
            .ztell64_file = [](void* self, void*) -> ZPOS64_T { return Of(self).at_; },
            .zseek64_file = Seek,
            .zclose_file = [](void*, void*) { return 0; },
            .zerror_file = [](void* self, void*) { return Of(self).failure ? 1 : 0; },
            .opaque = this};
  }

  AtomicFile file;
  std::exception_ptr failure;

 private:
  static Sink& Of(void* self) { return *static_cast<Sink*>(self); }

  static uLong Write(void* self, void*, const void* bytes, uLong count) {
    Sink& sink = Of(self);
    if (sink.failure) return 0;
    try {
      const std::span all(static_cast<const std::byte*>(bytes), count);
      const size_t old = std::min<uint64_t>(count, sink.file.written() - sink.at_);
      sink.file.Overwrite(sink.at_, all.first(old));
      sink.file.Write(all.subspan(old));
      sink.at_ += count;
      return count;
    } catch (...) {
      sink.failure = std::current_exception();
      return 0;
    }
  }

  static long Seek(void* self, void*, ZPOS64_T offset, int origin) {
    Sink& sink = Of(self);
    const uint64_t from = origin == ZLIB_FILEFUNC_SEEK_SET   ? 0
                          : origin == ZLIB_FILEFUNC_SEEK_CUR ? sink.at_
                                                             : sink.file.written();
    if (from + offset > sink.file.written()) return -1;
    sink.at_ = from + offset;
    return 0;
  }

  uint64_t at_ = 0;
};

// BF16 is written as float32.
const char* WrittenType(TensorType type) {
  return NumpyType(type == TensorType::kBF16 ? TensorType::kF32 : type);
}

// Version 1.0 of the .npy format: magic, length, a Python dictionary padded to a multiple of 64.
std::string NpyHeader(const StoredTensor& tensor) {
  std::string dictionary = fmt::format(
      "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", WrittenType(tensor.type),
      Join(tensor.shape, ", "), tensor.shape.size() == 1 ? "," : "");
  constexpr size_t kBefore = 10;
  const size_t padded = (kBefore + dictionary.size() + 1 + 63) / 64 * 64;
  dictionary.resize(padded - kBefore - 1, ' ');
  dictionary += '\n';
  std::string header("\x93NUMPY\x01\x00", 8);
  header += static_cast<char>(dictionary.size() & 0xff);
  header += static_cast<char>(dictionary.size() >> 8);
  return header + dictionary;
}

constexpr uint64_t kBlock = 1 << 20;  // in numbers; a tensor may not fit into memory

uint64_t BytesInArchive(const StoredTensor& tensor) {
  return tensor.type == TensorType::kBF16 ? tensor.elements() * sizeof(float) : tensor.bytes();
}

// The bytes of `count` numbers in the format of the archive.
std::vector<std::byte> Block(const SafetensorsReader& model, const StoredTensor& tensor,
                             uint64_t from, uint64_t count) {
  if (tensor.type == TensorType::kBF16) {
    std::vector<std::byte> bytes(count * sizeof(float));
    model.ReadSomeFloats(tensor, from, {reinterpret_cast<float*>(bytes.data()), count});
    return bytes;
  }
  std::vector<std::byte> bytes(count * BytesOf(tensor.type));
  model.ReadSomeBytes(tensor, from * BytesOf(tensor.type), bytes);
  return bytes;
}

// Does not compress tensors: their bits hardly repeat.
class NpzWriter {
 public:
  explicit NpzWriter(const std::string& path) : path_(path), sink_(path) {
    zlib_filefunc64_def functions = sink_.Functions();
    zip_.reset(zipOpen2_64("", APPEND_STATUS_CREATE, nullptr, &functions));
    if (!zip_) throw std::bad_alloc();
  }
  // Makes zipClose skip writing an incomplete archive.
  ~NpzWriter() {
    if (zip_ && !sink_.failure) sink_.failure = std::make_exception_ptr(std::exception());
  }

  void Add(const SafetensorsReader& model, const StoredTensor& tensor) {
    const std::string header = NpyHeader(tensor);
    const bool is_large = header.size() + BytesInArchive(tensor) >= 0xffffffff;
    Check(zipOpenNewFileInZip4_64(zip_.get(), (tensor.name + ".npy").c_str(), &kPlainFile,  //
                                  nullptr, 0, nullptr, 0, nullptr,  // no extra fields, no comment
                                  kStored, 0, kNotRaw, 0, 0, 0,     // no compression
                                  nullptr, 0,                       // no password
                                  kMadeByUnix, kNameIsUtf8, is_large ? 1 : 0));
    Put(std::as_bytes(std::span(header)));
    for (uint64_t from = 0; from < tensor.elements(); from += kBlock) {
      Put(Block(model, tensor, from, std::min(kBlock, tensor.elements() - from)));
    }
    Check(zipCloseFileInZip(zip_.get()));
  }

  void Commit() {
    Check(zipClose(zip_.release(), nullptr));
    sink_.file.Commit();
  }

 private:
  static constexpr int kStored = 0, kNotRaw = 0;
  static constexpr uLong kMadeByUnix = 3 << 8 | 45, kNameIsUtf8 = 1 << 11;
  // A fixed date, the first one of the zip format, so that the same weights give the same archive.
  static constexpr zip_fileinfo kPlainFile{
      .tmz_date =
          {.tm_sec = 0, .tm_min = 0, .tm_hour = 0, .tm_mday = 1, .tm_mon = 0, .tm_year = 1980},
      .dosDate = 0,
      .internal_fa = 0,
      .external_fa = uLong{0100644} << 16};

  void Put(std::span<const std::byte> bytes) {
    Check(zipWriteInFileInZip(zip_.get(), bytes.data(), static_cast<unsigned>(bytes.size())));
  }
  void Check(int result) {
    if (sink_.failure) std::rethrow_exception(sink_.failure);
    if (result == ZIP_OK) return;
    throw Error(ExitCode::kFailure, "{}: cannot be written: minizip error {}", path_, result);
  }

  struct Close {
    void operator()(zipFile zip) const { (void)zipClose(zip, nullptr); }
  };

  const std::string path_;
  Sink sink_;
  std::unique_ptr<std::remove_pointer_t<zipFile>, Close> zip_;
};

}  // namespace

void WriteNpz(const SafetensorsReader& model, const std::string& path) {
  for (const StoredTensor& tensor : model.header().tensors) {
    if (*WrittenType(tensor.type) == '\0') {
      throw Error(ExitCode::kData, "{}: tensor {} is of type {}, which NumPy does not have",
                  model.path(), tensor.name, Name(tensor.type));
    }
  }
  NpzWriter writer(path);
  for (const StoredTensor& tensor : model.header().tensors) writer.Add(model, tensor);
  writer.Commit();
}

}  // namespace muster
