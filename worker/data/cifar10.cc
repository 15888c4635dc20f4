#include "worker/data/cifar10.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <optional>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/running_hash.h"
#include "common/base/text.h"
#include "worker/data/mapped_file.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

void CheckRecords(const MappedFile& file) {
  const int64_t size = static_cast<int64_t>(file.bytes().size());
  const int64_t records = size / kCifar10RecordBytes;
  if (size == 0 || size % kCifar10RecordBytes != 0) {
    throw Error(ExitCode::kData,
                "{}: expected a whole number of {}-byte CIFAR-10 records (30730000 bytes in the "
                "published files), found {} bytes: {} records and {} bytes. The file is {}",
                file.path(), kCifar10RecordBytes, size, records, size % kCifar10RecordBytes,
                size == 0 ? "empty" : "truncated or not a CIFAR-10 file");
  }
  for (int64_t record = 0; record < records; ++record) {
    const uint8_t label = file.bytes()[static_cast<size_t>(record * kCifar10RecordBytes)];
    if (label >= kCifar10Classes) {
      throw Error(
          ExitCode::kData,
          "{}: expected a label from 0 to {} at the start of record {} (byte {}), found {}. "
          "The file is damaged or not a CIFAR-10 file",
          file.path(), kCifar10Classes - 1, record, record * kCifar10RecordBytes, label);
    }
  }
}

int64_t RecordsOf(const MappedFile& file) {
  return static_cast<int64_t>(file.bytes().size()) / kCifar10RecordBytes;
}

struct FileRecords {
  std::string path;
  int64_t records;
};

// The number of records that the files must have. `says` names the source of these numbers.
struct ExpectedRecords {
  std::string says;
  int64_t train, test;
};

std::optional<ExpectedRecords> ExpectRecords(const fs::path& folder,
                                             const std::vector<FileRecords>& train) {
  const fs::path path = folder / kSyntheticNote;
  if (std::ifstream note = ReadPlainFile(path); note) {
    ExpectedRecords expected{"as stated in " + path.string(), -1, -1};
    for (std::string line; std::getline(note, line);) {
      std::istringstream words(line);
      std::string name;
      int64_t value = -1;
      if (!(words >> name >> value)) continue;
      if (name == kNoteTrainPerFile) expected.train = value;
      if (name == kNoteTest) expected.test = value;
    }
    if (expected.train > 0 && expected.test > 0) return expected;
  }
  for (const FileRecords& file : train) {
    if (file.records != kCifar10PublishedRecords) continue;
    return ExpectedRecords{
        fmt::format("as in the published files and {}", fs::path(file.path).filename().string()),
        kCifar10PublishedRecords, kCifar10PublishedRecords};
  }
  return std::nullopt;
}

// Files that are all cut off at the same length look like a custom set.
std::string RemarkOn(const std::vector<FileRecords>& train) {
  const int64_t records = train.front().records;
  const bool alike =
      std::ranges::all_of(train, [&](const FileRecords& file) { return file.records == records; });
  if (!alike || records >= kCifar10PublishedRecords) return "";
  return fmt::format("expected {} images per training file as published, found {} in each",
                     FormatCount(kCifar10PublishedRecords), FormatCount(records));
}

// A file that was cut off between two records can be detected only by comparison with the others.
void CheckCount(const FileRecords& file, int64_t records, const ExpectedRecords& expected) {
  if (file.records == records) return;
  throw Error(ExitCode::kData,
              "{}: expected {} records, {}, found {}: the file is {} (in a custom set, no training "
              "file may have {} images)",
              file.path, records, expected.says, file.records,
              file.records < records ? "truncated" : "from another set", kCifar10PublishedRecords);
}

class Cifar10Dataset final : public Dataset {
 public:
  explicit Cifar10Dataset(std::vector<MappedFile> files) : files_(std::move(files)) {
    for (const MappedFile& file : files_) {
      firsts_.push_back(size_);
      size_ += RecordsOf(file);
    }
  }

  int64_t size() const override { return size_; }
  Shape shape() const override { return {kCifar10Side, kCifar10Side, kCifar10Channels}; }
  int64_t classes() const override { return kCifar10Classes; }
  int32_t Label(int64_t index) const override { return Record(index)[0]; }
  std::span<const uint8_t> Planes(int64_t index, std::vector<uint8_t>&) const override {
    return Record(index).subspan(1);
  }

  size_t bytes() const override { return static_cast<size_t>(size_ * kCifar10RecordBytes); }
  bool is_mapped() const override { return true; }

  uint64_t Fingerprint() const override {
    std::call_once(fingerprint_once_, [this] {
      RunningHash hash;
      for (const MappedFile& file : files_) hash.Add(std::as_bytes(file.bytes()));
      fingerprint_ = hash.value();
    });
    return fingerprint_;
  }

 private:
  std::span<const uint8_t> Record(int64_t index) const {
    MUSTER_CHECK(0 <= index && index < size_);
    const auto after = std::upper_bound(firsts_.begin(), firsts_.end(), index);
    const size_t file = static_cast<size_t>(after - firsts_.begin()) - 1;
    return files_[file].bytes().subspan(
        static_cast<size_t>((index - firsts_[file]) * kCifar10RecordBytes),
        static_cast<size_t>(kCifar10RecordBytes));
  }

  std::vector<MappedFile> files_;
  std::vector<int64_t> firsts_;  // index of each file's first record
  int64_t size_ = 0;
  mutable std::once_flag fingerprint_once_;
  mutable uint64_t fingerprint_ = 0;
};

bool Exists(const fs::path& path) {
  std::error_code ignored;  // an unreadable path counts as missing
  return fs::exists(path, ignored);
}

MappedFile Open(const fs::path& path) {
  MappedFile file(path.string());
  CheckRecords(file);
  return file;
}

// Returns the folder of the set's files in `dir`. Throws Error(kData) if there is none.
fs::path FindSet(const std::string& dir) {
  fs::path found = FindCifar10(dir);
  if (Exists(dir) && !fs::is_directory(dir)) {
    throw Error(ExitCode::kData, "{}: expected a directory with CIFAR-10 files, found a file", dir);
  }
  if (!Exists(found / kCifar10TrainFiles[0]) && !Exists(found / kCifar10TestFile)) {
    throw Error(ExitCode::kData,
                "{}: no CIFAR-10 data set: expected data_batch_1.bin … data_batch_5.bin and "
                "test_batch.bin in this directory or in {}",
                dir, (fs::path(dir) / kCifar10Folder).string());
  }
  return found;
}

// Whether the directory holds unrelated files, which a download must not be mixed with.
bool HoldsOtherFiles(const std::string& dir) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename();
    if (!name.starts_with('.') && !name.starts_with("cifar-10-")) return true;
  }
  return false;
}

}  // namespace

std::string FindCifar10(const std::string& dir) {
  const fs::path inner = fs::path(dir) / kCifar10Folder;
  const bool here =
      Exists(fs::path(dir) / kCifar10TrainFiles[0]) || Exists(fs::path(dir) / kCifar10TestFile);
  return !here && Exists(inner) ? inner.string() : dir;
}

Datasets OpenCifar10(const std::string& dir) {
  const fs::path found = FindSet(dir);
  std::vector<MappedFile> train, test;
  std::vector<FileRecords> records;
  for (const char* name : kCifar10TrainFiles) {
    train.push_back(Open(found / name));
    records.push_back({train.back().path(), RecordsOf(train.back())});
  }
  test.push_back(Open(found / kCifar10TestFile));
  const bool made_up = Exists(found / kSyntheticNote);
  const std::optional<ExpectedRecords> expected = ExpectRecords(found, records);
  if (expected) {
    for (const FileRecords& file : records) CheckCount(file, expected->train, *expected);
    CheckCount({test.front().path(), RecordsOf(test.front())}, expected->test, *expected);
  }
  return {.train = std::make_unique<Cifar10Dataset>(std::move(train)),
          .test = std::make_unique<Cifar10Dataset>(std::move(test)),
          .remark = made_up    ? "synthetic images (muster data synth), not CIFAR-10"
                    : expected ? ""
                               : RemarkOn(records)};
}

std::unique_ptr<Dataset> OpenCifar10Test(const std::string& dir) {
  const fs::path found = FindSet(dir);
  std::vector<MappedFile> test;
  test.push_back(Open(found / kCifar10TestFile));
  std::vector<FileRecords> records;
  for (const char* name : kCifar10TrainFiles) {
    std::error_code error;
    const auto size = static_cast<int64_t>(fs::file_size(found / name, error));
    if (!error) records.push_back({(found / name).string(), size / kCifar10RecordBytes});
  }
  if (const std::optional<ExpectedRecords> expected = ExpectRecords(found, records)) {
    CheckCount({test.front().path(), RecordsOf(test.front())}, expected->test, *expected);
  }
  return std::make_unique<Cifar10Dataset>(std::move(test));
}

std::string Cifar10Remedy(const std::string& dir) {
  std::error_code ignored;
  const fs::path path(dir);
  if (fs::exists(path, ignored) && !fs::is_directory(path, ignored)) {
    return "Pass the directory of the data: --data DIR, or data.dir in the config.";
  }
  const std::string found = FindCifar10(dir);
  const bool something = fs::exists(found + "/" + kCifar10TrainFiles[0], ignored) ||
                         fs::exists(found + "/" + kCifar10TestFile, ignored);
  if (!something && (Exists(path / "cifar-10-batches-py") || Exists(path / "data_batch_1"))) {
    return "These are the files of the Python version: `muster data get cifar10 DIR` downloads the "
           "binary version.";
  }
  if (!something && HoldsOtherFiles(dir)) {
    return "The directory contains other files. For a folder of photos set data.format to "
           "IMAGE_FOLDER, as in configs/imagefolder_resnet18.txtpb. For CIFAR-10, download it to a "
           "separate folder, such as `muster data get cifar10 data/cifar10`, and pass that folder "
           "with --data.";
  }
  return fmt::format(
      "{} with `muster data get cifar10 {}` or, without a network, generate a substitute with "
      "`muster data synth {}`.",
      something ? "Move this set away and download it again" : "Download the data set", dir, dir);
}

}  // namespace muster
