#include "cli/data/synthesize.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "cli/data/data_folder.h"
#include "cli/data/synthetic_image.h"
#include "cli/text/console.h"
#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/plain_file.h"
#include "worker/data/cifar10.h"

namespace muster {
namespace fs = std::filesystem;
namespace {

// Counts up whenever the same arguments give other bytes than before.
constexpr int kVersion = 1;

std::string Recipe(uint64_t seed, int64_t train_per_file, int64_t test_count) {
  return fmt::format(
      "A procedural data set made by `muster data synth`, not CIFAR-10.\n"
      "version {}\nseed {}\n{} {}\n{} {}\n",
      kVersion, seed, kNoteTrainPerFile, train_per_file, kNoteTest, test_count);
}

void WriteImages(const fs::path& path, uint64_t seed, uint64_t first, int64_t count) {
  constexpr int64_t kImagesPerWrite = 256;
  std::vector<uint8_t> buffer(kImagesPerWrite * kCifar10RecordBytes);
  AtomicFile file(path);
  for (int64_t done = 0; done < count;) {
    const int64_t now = std::min(kImagesPerWrite, count - done);
    for (int64_t i = 0; i < now; ++i) {
      RenderSynthetic(seed, first + static_cast<uint64_t>(done + i),
                      std::span(buffer)
                          .subspan(static_cast<size_t>(i * kCifar10RecordBytes))
                          .first<kCifar10RecordBytes>());
    }
    file.Write(
        std::as_bytes(std::span(buffer).first(static_cast<size_t>(now * kCifar10RecordBytes))));
    done += now;
  }
  file.Commit();
}

// Whether the set of this recipe is there. Throws Error(kData) if something else is, or if a file
// of it is missing or cut off.
bool AlreadyThere(const std::string& dir, const std::string& recipe) {
  const fs::path found = ExistingCifar10(dir);
  if (found.empty()) return false;
  std::ifstream file = ReadPlainFile(found / kSyntheticNote);
  const std::string note{std::istreambuf_iterator<char>(file), {}};
  if (!note.starts_with(recipe)) {
    throw Error(ExitCode::kData,
                "{}: another data set is already there. Nothing was written. Move it away, or "
                "choose another directory.",
                found.string());
  }
  (void)OpenCifar10(dir);
  return true;
}

}  // namespace

void SynthesizeCifar10(const std::string& dir, uint64_t seed, int64_t train_per_file,
                       int64_t test_count) {
  if (train_per_file < 1 || test_count < 1) {
    throw Error(
        ExitCode::kUsage,
        "procedural data set: expected at least 1 image per training file and 1 test image, "
        "found {} and {}",
        train_per_file, test_count);
  }
  const UniqueFd lock = LockDataFolder(dir);
  const std::string recipe = Recipe(seed, train_per_file, test_count);
  const fs::path target = fs::path(dir) / kCifar10Folder;
  if (AlreadyThere(dir, recipe)) {
    PrintResult(fmt::format("{}: this procedural data set is already there.", FindCifar10(dir)));
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  StageFolder(target, [&](const fs::path& staging) {
    for (size_t i = 0; i < kCifar10TrainFiles.size(); ++i) {
      WriteImages(staging / kCifar10TrainFiles[i], seed, i * static_cast<uint64_t>(train_per_file),
                  train_per_file);
    }
    WriteImages(staging / kCifar10TestFile, seed, kFirstSyntheticTestImage, test_count);
    std::string names;
    for (const char* name : kSyntheticClasses) names += fmt::format("{}\n", name);
    WriteFileAtomically(staging / "batches.meta.txt", names);
    WriteFileAtomically(staging / kSyntheticNote, recipe);
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  PrintResult(fmt::format("{}: made {} training and {} test images (seed {}) in {:.1f} s.",
                          target.string(), 5 * train_per_file, test_count, seed, seconds.count()));
}

}  // namespace muster
