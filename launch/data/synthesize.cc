#include "launch/data/synthesize.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <vector>

#include "common/base/error.h"
#include "common/base/plain_file.h"
#include "launch/data/existing_set.h"
#include "launch/data/staged_folder.h"
#include "launch/data/synthetic_image.h"
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

std::string Fingerprints(const Datasets& sets) {
  return fmt::format("train_hash {:016x}\ntest_hash {:016x}\n", sets.train->Fingerprint(),
                     sets.test->Fingerprint());
}

void WriteText(const fs::path& path, const std::string& text) {
  OutputFile file(path);
  file.Write({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  file.Close();
}

void WriteImages(const fs::path& path, uint64_t seed, uint64_t first, int64_t count) {
  constexpr int64_t kImagesPerWrite = 256;
  std::vector<uint8_t> buffer(kImagesPerWrite * kCifar10RecordBytes);
  OutputFile file(path);
  for (int64_t done = 0; done < count;) {
    const int64_t now = std::min(kImagesPerWrite, count - done);
    for (int64_t i = 0; i < now; ++i) {
      RenderSynthetic(seed, first + static_cast<uint64_t>(done + i),
                      std::span(buffer)
                          .subspan(static_cast<size_t>(i * kCifar10RecordBytes))
                          .first<kCifar10RecordBytes>());
    }
    file.Write(std::span(buffer).first(static_cast<size_t>(now * kCifar10RecordBytes)));
    done += now;
  }
  file.Close();
}

// Whether the set of this recipe is there, whole. Throws Error(kData) where something else is.
bool AlreadyThere(const std::string& dir, const std::string& recipe) {
  const std::optional<fs::path> found = FindExistingSet(dir);
  if (!found) return false;
  std::ifstream file = ReadPlainFile(*found / kSyntheticNote);
  const std::string note{std::istreambuf_iterator<char>(file), {}};
  std::string difference;
  if (note.empty()) {
    difference = "it is not a procedural data set";
  } else if (!note.starts_with(recipe)) {
    difference =
        fmt::format("it was made with other settings, see {}", (*found / kSyntheticNote).string());
  } else {
    try {
      if (note == recipe + Fingerprints(OpenCifar10(dir))) return true;
      difference = "its files have been changed";
    } catch (const Error& error) {
      difference = fmt::format("it is damaged: {}", error.what());
    }
  }
  throw Error(ExitCode::kData,
              "{}: a data set is already there, and {}. Nothing was written. Choose another "
              "directory, or move this one away.",
              found->string(), difference);
}

}  // namespace

void SynthesizeCifar10(const std::string& dir, uint64_t seed, int64_t train_per_file,
                       int64_t test_count, std::FILE* out) {
  if (train_per_file < 1 || test_count < 1) {
    throw Error(
        ExitCode::kUsage,
        "procedural data set: expected at least 1 image per training file and 1 test image, "
        "found {} and {}",
        train_per_file, test_count);
  }
  const DirectoryLock lock(dir);
  const std::string recipe = Recipe(seed, train_per_file, test_count);
  const fs::path target = fs::path(dir) / kCifar10Folder;
  if (AlreadyThere(dir, recipe)) {
    fmt::print(out, "{}: this procedural data set is already there.\n", FindCifar10(dir));
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  StagedFolder folder(dir, kCifar10Folder);
  for (size_t i = 0; i < kCifar10TrainFiles.size(); ++i) {
    WriteImages(folder.path() / kCifar10TrainFiles[i], seed,
                i * static_cast<uint64_t>(train_per_file), train_per_file);
  }
  WriteImages(folder.path() / kCifar10TestFile, seed, kFirstSyntheticTestImage, test_count);
  std::string names;
  for (const char* name : kSyntheticClasses) names += fmt::format("{}\n", name);
  WriteText(folder.path() / "batches.meta.txt", names);
  // First what the files must hold, which opening them checks.
  WriteText(folder.path() / kSyntheticNote, recipe);
  WriteText(folder.path() / kSyntheticNote,
            recipe + Fingerprints(OpenCifar10(folder.path().string())));
  folder.Commit();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print(out, "{}: made {} training and {} test images (seed {}) in {:.1f} s.\n",
             target.string(), 5 * train_per_file, test_count, seed, seconds.count());
}

}  // namespace muster
