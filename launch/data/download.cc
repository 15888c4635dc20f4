#include "launch/data/download.h"

#include <filesystem>
#include <optional>

#include "common/base/error.h"
#include "launch/data/existing_set.h"
#include "launch/data/fetch.h"
#include "launch/data/md5.h"
#include "launch/data/staged_folder.h"
#include "launch/data/unpack.h"
#include "worker/data/cifar10.h"
#include "worker/data/mnist.h"

namespace muster {
namespace fs = std::filesystem;
namespace {

// Whether the data set is there. Throws Error(kData) where something else is in its place.
bool AlreadyThere(const std::string& dir) {
  const std::optional<fs::path> found = FindExistingSet(dir);
  if (!found) return false;
  if (fs::exists(*found / kSyntheticNote)) {
    throw Error(ExitCode::kData,
                "{}: a procedural data set is there ({}), not the published one. Nothing was "
                "written. Choose another directory, or move this one away.",
                found->string(), kSyntheticNote);
  }
  try {
    OpenCifar10(dir);
    return true;
  } catch (const Error& error) {
    throw Error(ExitCode::kData,
                "{}: something is there, but not a whole CIFAR-10 data set: {}. Nothing was "
                "written. Move it away, then run this again.",
                found->string(), error.what());
  }
}

std::string ArchiveName(const std::string& url) { return url.substr(url.find_last_of('/') + 1); }

// Empty if the file is the one that was published, else what is wrong.
std::string Difference(const fs::path& archive, const DownloadOptions& options) {
  const auto bytes = static_cast<int64_t>(fs::file_size(archive));
  if (bytes != options.bytes) {
    return fmt::format("expected {} bytes, found {}", options.bytes, bytes);
  }
  const std::string md5 = Md5OfFile(archive);
  if (md5 != options.md5) return fmt::format("expected MD5 {}, found {}", options.md5, md5);
  return "";
}

// Downloads to `part` until it is the published archive.
void Download(const fs::path& part, const DownloadOptions& options) {
  std::error_code missing;
  const bool resumed = fs::file_size(part, missing) > 0 && !missing;
  Fetch(options.url, part,
        {.bytes = options.bytes,
         .attempts = options.attempts,
         .connect_timeout_s = options.connect_timeout_s,
         .stall_timeout_s = options.stall_timeout_s,
         .progress = options.progress});
  const std::string difference = Difference(part, options);
  if (difference.empty()) return;
  fs::remove(part);  // what is wrong cannot be gone on from
  if (resumed) {
    fmt::print(options.out,
               "{}: the resumed download is not the published archive ({}). Starting "
               "again from the beginning.\n",
               part.string(), difference);
    return Download(part, options);
  }
  throw Error(ExitCode::kData, "{}: this is not the published archive: {}", options.url,
              difference);
}

// The archive in `dir`, checked: put there by hand, or downloaded now.
fs::path Obtain(const fs::path& dir, const DownloadOptions& options) {
  const std::string name = ArchiveName(options.url);
  const fs::path by_hand = dir / name, part = dir / (name + ".part");
  if (fs::exists(by_hand)) {
    const std::string difference = Difference(by_hand, options);
    if (difference.empty()) return by_hand;
    throw Error(ExitCode::kData,
                "{}: this is not the published archive: {}. Remove it and run this again to "
                "download it from {}.",
                by_hand.string(), difference, options.url);
  }
  try {
    Download(part, options);
    return part;
  } catch (const Error& error) {
    std::error_code ignored;
    if (fs::file_size(part, ignored) == 0) fs::remove(part, ignored);  // nothing has arrived
    throw Error(error.code(),
                "cannot download the data set: {}. Run this again to go on, or get {} ({} bytes, "
                "MD5 {}) on another machine, put it at {} and run this again{}.",
                error.what(), options.url, options.bytes, options.md5, by_hand.string(),
                options.stand_in
                    ? fmt::format("; or make a stand-in with `muster data synth {}`", dir.string())
                    : "");
  }
}

// Says how much will be downloaded, unless it was put there by hand.
void Announce(const std::string& name, int64_t bytes, const DownloadOptions& options) {
  fmt::print(options.out, "Downloading {}: {:.1f} MB.\n", name, static_cast<double>(bytes) * 1e-6);
  std::fflush(options.out);
}

}  // namespace

void DownloadCifar10(const std::string& dir, const DownloadOptions& options) {
  const DirectoryLock lock(dir);
  if (AlreadyThere(dir)) {
    fmt::print(options.out, "{}: CIFAR-10 is already there.\n", FindCifar10(dir));
    return;
  }
  if (!fs::exists(fs::path(dir) / ArchiveName(options.url))) {
    Announce("CIFAR-10", options.bytes, options);
  }
  const fs::path archive = Obtain(dir, options);
  StagedFolder folder(dir, kCifar10Folder);
  Unpack(archive, kCifar10Folder, folder.path());
  const Datasets sets = OpenCifar10(folder.path().string());
  folder.Commit();
  if (archive.extension() == ".part") fs::remove(archive);
  fmt::print(options.out, "{}: CIFAR-10, {} training and {} test images.\n",
             (fs::path(dir) / kCifar10Folder).string(), sets.train->size(), sets.test->size());
}

std::vector<MnistFile> MnistFiles() {
  return {{"train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9912422},
          {"train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28881},
          {"t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1648877},
          {"t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4542}};
}

void DownloadMnist(const std::string& dir, const std::vector<MnistFile>& files,
                   DownloadOptions options) {
  const DirectoryLock lock(dir);
  const std::string mirror = options.url;
  options.stand_in = false;
  int64_t bytes = 0;
  for (const MnistFile& file : files) {
    const fs::path plain = (fs::path(dir) / file.name).replace_extension();
    if (fs::exists(plain)) {
      throw Error(
          ExitCode::kData,
          "{}: something is there, which would be read in place of {}. Nothing was written. "
          "Move it away, then run this again, or choose another directory.",
          plain.string(), file.name);
    }
    if (!fs::exists(fs::path(dir) / file.name)) bytes += file.bytes;
  }
  if (bytes > 0) Announce("MNIST", bytes, options);
  for (const MnistFile& file : files) {
    options.url = mirror + file.name;
    options.md5 = file.md5;
    options.bytes = file.bytes;
    const fs::path found = Obtain(dir, options);
    if (found.extension() == ".part") fs::rename(found, fs::path(dir) / file.name);
  }
  const Datasets sets = OpenMnist(dir);
  fmt::print(options.out, "{}: MNIST{}, {} training and {} test images.\n", dir,
             bytes == 0 ? " is already there" : "", sets.train->size(), sets.test->size());
}

}  // namespace muster
