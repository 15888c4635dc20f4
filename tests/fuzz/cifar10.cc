// A set in CIFAR-10's files that is taken has labels in range and pixels that can all be read; what
// is refused is refused with the folder's name. The test set by itself is the same one. The note of
// a procedural set is a part of it.
#include "worker/data/cifar10.h"

#include "tests/fuzz/check_sets.h"
#include "tests/fuzz/fuzz.h"

namespace muster::fuzz {
namespace {

// How long each file is, in records and bytes, then the note, then the labels.
void WriteFiles(Input input, const Folder& folder) {
  std::vector<std::string> files;
  for (size_t i = 0; i <= kCifar10TrainFiles.size(); ++i) {
    const size_t records = input.Byte() % 5;
    const size_t odd = input.Byte();  // mostly none
    files.emplace_back(records * kCifar10RecordBytes + (odd > 250 ? odd : 0), '\0');
  }
  folder.Write(kSyntheticNote, input.Piece());
  for (std::string& file : files) {
    for (size_t at = 0; at < file.size(); at += kCifar10RecordBytes) {
      file[at] = static_cast<char>(input.Byte());
    }
  }
  for (size_t i = 0; i < kCifar10TrainFiles.size(); ++i) {
    folder.Write(kCifar10TrainFiles[i], files[i]);
  }
  folder.Write(kCifar10TestFile, files.back());
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  muster::fuzz::SilenceLogs();
  static const muster::fuzz::Folder folder;
  muster::fuzz::WriteFiles({data, size}, folder);
  muster::fuzz::OrError(folder.path(), [] {
    muster::fuzz::CheckSets(muster::OpenCifar10(folder.path()),
                            *muster::OpenCifar10Test(folder.path()));
  });
  return 0;
}
