#include "launch/model/npz.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/core.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/join.h"

namespace muster {
namespace {

constexpr time_t kEarliest = 315532800;  // 1980-01-01, the first that a zip archive knows

// libarchive calls C functions: what they throw is kept.
struct Sink {
  AtomicFile& file;
  std::exception_ptr failure;

  static la_ssize_t Write(archive*, void* self, const void* bytes, size_t count) {
    auto& sink = *static_cast<Sink*>(self);
    if (sink.failure) return -1;  // libarchive tries again when it is closed
    try {
      sink.file.Write({static_cast<const std::byte*>(bytes), count});
      return static_cast<la_ssize_t>(count);
    } catch (...) {
      sink.failure = std::current_exception();
      return -1;
    }
  }
};

// The type as NumPy names it; "" if it has none.
const char* NumpyType(TensorType type) {
  switch (type) {
    case TensorType::kBool:
      return "|b1";
    case TensorType::kU8:
      return "|u1";
    case TensorType::kI8:
      return "|i1";
    case TensorType::kU16:
      return "<u2";
    case TensorType::kI16:
      return "<i2";
    case TensorType::kF16:
      return "<f2";
    case TensorType::kU32:
      return "<u4";
    case TensorType::kI32:
      return "<i4";
    case TensorType::kBF16:
    case TensorType::kF32:
      return "<f4";
    case TensorType::kU64:
      return "<u8";
    case TensorType::kI64:
      return "<i8";
    case TensorType::kF64:
      return "<f8";
    default:
      return "";
  }
}

// Version 1.0 of the .npy format: magic, length, a Python dictionary padded to a multiple of 64.
std::string NpyHeader(const StoredTensor& tensor) {
  std::string dictionary = fmt::format(
      "{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", NumpyType(tensor.type),
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

constexpr uint64_t kBlock = 1 << 20;  // numbers; a tensor may be larger than the memory

uint64_t BytesInArchive(const StoredTensor& tensor) {
  return tensor.type == TensorType::kBF16 ? tensor.elements() * sizeof(float) : tensor.bytes();
}

// So many of its numbers as the archive has them: NumPy has no BF16.
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

class NpzWriter {
 public:
  explicit NpzWriter(const std::string& path) : path_(path), file_(path), sink_{file_, nullptr} {
    archive_write_set_format_zip(zip_.get());
    archive_write_zip_set_compression_store(zip_.get());
    archive_write_set_bytes_in_last_block(zip_.get(), 1);  // no padding
    Check(archive_write_open(zip_.get(), &sink_, nullptr, Sink::Write, nullptr));
  }

  void Add(const SafetensorsReader& model, const StoredTensor& tensor) {
    const std::string header = NpyHeader(tensor);
    const std::unique_ptr<archive_entry, decltype(&archive_entry_free)> entry(archive_entry_new(),
                                                                              archive_entry_free);
    archive_entry_set_pathname(entry.get(), (tensor.name + ".npy").c_str());
    archive_entry_set_filetype(entry.get(), AE_IFREG);
    archive_entry_set_perm(entry.get(), 0644);
    archive_entry_set_mtime(entry.get(), kEarliest, 0);
    archive_entry_set_size(entry.get(),
                           static_cast<la_int64_t>(header.size() + BytesInArchive(tensor)));
    Check(archive_write_header(zip_.get(), entry.get()));
    Put(std::as_bytes(std::span(header)));
    for (uint64_t from = 0; from < tensor.elements(); from += kBlock) {
      Put(Block(model, tensor, from, std::min(kBlock, tensor.elements() - from)));
    }
  }

  void Commit() {
    Check(archive_write_close(zip_.get()));
    file_.Commit();
  }

 private:
  void Put(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const la_ssize_t n = archive_write_data(zip_.get(), bytes.data(), bytes.size());
      if (n <= 0) Check(ARCHIVE_FATAL);
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
  }
  void Check(int result) {
    if (sink_.failure) std::rethrow_exception(sink_.failure);
    if (result >= ARCHIVE_WARN) return;
    const char* const why = archive_error_string(zip_.get());
    throw Error(ExitCode::kFailure, "{}: cannot be written: {}", path_,
                why == nullptr ? "unknown reason" : why);
  }

  const std::string path_;
  AtomicFile file_;
  Sink sink_;
  std::unique_ptr<archive, decltype(&archive_write_free)> zip_{archive_write_new(),
                                                               archive_write_free};
};

}  // namespace

void WriteNpz(const SafetensorsReader& model, const std::string& path) {
  for (const StoredTensor& tensor : model.header().tensors) {
    if (*NumpyType(tensor.type) == '\0') {
      throw Error(ExitCode::kData, "{}: tensor {} is of type {}, which NumPy does not have",
                  model.path(), tensor.name, Name(tensor.type));
    }
  }
  NpzWriter writer(path);
  for (const StoredTensor& tensor : model.header().tensors) writer.Add(model, tensor);
  writer.Commit();
}

}  // namespace muster
