// A set in MNIST's files, plain or gzip, that is taken has as many labels as images and pixels that
// can all be read; a file asks for no more memory than its own size can hold.
#include "worker/data/mnist.h"

#include <zlib.h>

#include "tests/fuzz/check_sets.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

constexpr const char* kFiles[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                  "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

// Checksum and all, which no fuzzer would guess.
std::string Compressed(const std::string& bytes) {
  z_stream stream = {};
  Require(deflateInit2(&stream, 1, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK,
          "zlib");
  std::string packed(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  Require(deflate(&stream, Z_FINISH) == Z_STREAM_END, "zlib");
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// Bits of the first byte: which of the four are compressed here, as they should be.
void WriteFiles(Input input, const Folder& folder) {
  const uint8_t how = input.Byte();
  for (size_t i = 0; i < std::size(kFiles); ++i) {
    const std::string bytes = i + 1 < std::size(kFiles) ? input.Piece() : input.Rest();
    const bool packed = (how >> i & 1) != 0;
    folder.Write(kFiles[i] + std::string(".gz"), packed ? Compressed(bytes) : bytes);
  }
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::SilenceLogs();
  static const muster::fuzz::Folder folder;
  muster::fuzz::WriteFiles({data, size}, folder);
  muster::fuzz::OrError(folder.path(), [] {
    muster::fuzz::CheckSets(muster::OpenMnist(folder.path()),
                            *muster::OpenMnistTest(folder.path()));
  });
  return 0;
}
