#include "ps/record/write_checkpoint.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <thread>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/run_mark.h"
#include "common/checkpoint/state_file.h"
#include "common/events/event_log.h"

namespace muster {
namespace {

namespace fs = std::filesystem;

constexpr const char* kUnfinished = ".partial";
constexpr const char* kGoing = ".removing";
constexpr size_t kWriteBytes = 8 << 20;

[[noreturn]] void Fail(const std::string& path, const char* what) {
  throw Error(ExitCode::kFailure, "{}: cannot be {}: {}", path, what, ErrorText(errno));
}

void MakeFolder(const std::string& path) {
  if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) Fail(path, "created");
}

// Writes whole blocks from aligned memory with O_DIRECT if the file system supports it. Does not
// preallocate: filling preallocated space is slower.
class BlockFile {
 public:
  explicit BlockFile(const std::string& path) : path_(path) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    fd_.Reset(::open(path.c_str(), kFlags | O_DIRECT, 0666));
    if (!fd_.valid() && errno == EINVAL) fd_.Reset(::open(path.c_str(), kFlags & ~O_EXCL, 0666));
    if (!fd_.valid()) Fail(path_, "created");
  }

  void Write(std::span<const std::byte> blocks) {
    while (!blocks.empty()) {
      const ssize_t n = ::pwrite(fd_.get(), blocks.data(), std::min(blocks.size(), kWriteBytes),
                                 static_cast<off_t>(at_));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && errno == EINVAL && LeaveDirect()) continue;
      if (n <= 0) Fail(path_, "written");
      blocks = blocks.subspan(static_cast<size_t>(n));
      at_ += static_cast<uint64_t>(n);
      // The rest of a partially written block cannot use O_DIRECT.
      if (at_ % TensorImage::kBlock != 0) (void)LeaveDirect();
    }
  }

  // Removes the padding after the last block and syncs the file to disk.
  void Finish(uint64_t bytes) {
    if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) Fail(path_, "written");
    if (::fsync(fd_.get()) != 0) Fail(path_, "synced");
    if (::close(fd_.Release()) != 0) Fail(path_, "written");
  }

 private:
  bool LeaveDirect() const {
    const int flags = ::fcntl(fd_.get(), F_GETFL);
    return (flags & O_DIRECT) != 0 && ::fcntl(fd_.get(), F_SETFL, flags & ~O_DIRECT) == 0;
  }

  const std::string path_;
  UniqueFd fd_;
  uint64_t at_ = 0;
};

void WriteTensors(const std::string& path, const CheckpointToWrite& what, const TensorImage& image,
                  checkpoint::TensorFile& described) {
  const SafetensorsHeader header =
      LayOutSafetensors(what.tensors, TensorMetadata(what.state), TensorImage::kBlock);
  const std::string text = HeaderBytes(header);
  MUSTER_CHECK(text.size() % TensorImage::kBlock == 0 &&
               header.file_bytes() == text.size() + image.bytes());
  const std::unique_ptr<void, decltype(&std::free)> aligned(
      std::aligned_alloc(TensorImage::kBlock, text.size()), &std::free);
  if (!aligned) throw std::bad_alloc();
  std::memcpy(aligned.get(), text.data(), text.size());

  described.set_bytes(header.file_bytes());
  described.set_header_xxh3(XXH3_64bits(text.data(), text.size()));
  // Compute hashes while the writing thread waits for the disk.
  const std::jthread describing([&] {
    for (const StoredTensor& tensor : header.tensors) {
      const std::span<const std::byte> bytes = image.Tensor(tensor);
      checkpoint::TensorFile::Tensor& one = *described.add_tensor();
      one.set_name(tensor.name);
      one.set_xxh3(XXH3_64bits(bytes.data(), bytes.size()));
    }
  });
  BlockFile file(path);
  file.Write({static_cast<const std::byte*>(aligned.get()), text.size()});
  file.Write(image.blocks());
  file.Finish(header.file_bytes());
}

void WriteText(const std::string& path, const std::string& text) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.valid()) Fail(path, "created");
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t n = ::write(fd.get(), rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) Fail(path, "written");
    rest.remove_prefix(static_cast<size_t>(n));
  }
  if (::fsync(fd.get()) != 0) Fail(path, "synced");
}

// Claims the checkpoint folder: the run id distinguishes this run's checkpoints from others.
void TakeFolder(const std::string& folder, const std::string& run_id) {
  const std::string path = folder + "/" + kRunIdFile;
  std::ifstream file = ReadPlainFile(path);
  if (!file) return WriteFileAtomically(path, run_id);
  std::string there;
  std::getline(file, there, '\0');
  if (there == run_id) return;
  if (!IsRunId(there)) return WriteFileAtomically(path, run_id);  // not a valid id
  throw Error(ExitCode::kFailure,
              "{}: expected checkpoints of run {}, got checkpoints of run {}. Choose another "
              "directory (--run-dir)",
              folder, run_id, Printable(there));
}

// Writes the run id to the run directory, which now has a checkpoint. If this fails, the checkpoint
// still counts, and the next one retries.
void MarkRun(const std::string& run_dir, const std::string& run_id) {
  if (RunIdIn(run_dir) == run_id) return;
  try {
    WriteFileAtomically(run_dir + "/" + kRunIdFile, run_id);
  } catch (const Error& error) {
    LogWarning("{}", error.what());
  }
}

// Renames the folder first, so that a partially removed one is not a checkpoint.
void Remove(const std::string& folder) {
  std::error_code ignored;
  const std::string going = folder + kGoing;
  fs::remove_all(going, ignored);
  if (::rename(folder.c_str(), going.c_str()) == 0) fs::remove_all(going, ignored);
}

void WriteFolder(const std::string& folder, const CheckpointToWrite& what,
                 const TensorImage& image) {
  checkpoint::State state = what.state;
  if (::mkdir(folder.c_str(), 0777) != 0) Fail(folder, "created");
  WriteTensors(folder + "/" + kTensorFile, what, image, *state.mutable_tensors());
  if (what.program != nullptr) {
    WriteText(folder + "/" + kProgramFile, *what.program);
    state.mutable_program()->set_bytes(what.program->size());
    state.mutable_program()->set_xxh3(XXH3_64bits(what.program->data(), what.program->size()));
  }
  WriteText(folder + "/" + kStateFile, StateFileBytes(state));
  // Pipes and some file systems do not support fsync.
  if (what.log_fd >= 0 && ::fsync(what.log_fd) != 0 && errno != EINVAL && errno != EROFS) {
    Fail(what.run_dir + "/" + kEventLog, "synced");
  }
  SyncFolder(folder);
}

}  // namespace

void WriteCheckpoint(const CheckpointToWrite& what, const TensorImage& image) {
  const std::string all = CheckpointsFolder(what.run_dir);
  const std::string path = all + "/" + what.name.Text();
  const std::string unfinished = path + kUnfinished;
  std::error_code ignored;
  try {
    if (!fs::exists(all, ignored)) {
      MakeFolder(all);
      SyncFolder(what.run_dir);
    }
    TakeFolder(all, what.state.run_id());
    fs::remove_all(unfinished, ignored);
    WriteFolder(unfinished, what, image);
    // An earlier attempt may have failed after the rename.
    if (fs::exists(path, ignored)) Remove(path);
    if (::rename(unfinished.c_str(), path.c_str()) != 0) Fail(path, "renamed");
    SyncFolder(all);
  } catch (const Error&) {
    fs::remove_all(unfinished, ignored);
    throw;
  }
  MarkRun(what.run_dir, what.state.run_id());
  for (const CheckpointName& name : what.expired) Remove(all + "/" + name.Text());
}

void RemoveLeftovers(const std::string& run_dir) {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (fs::directory_iterator at(CheckpointsFolder(run_dir), error), end; !error && at != end;
       at.increment(error)) {
    const std::string extension = at->path().extension();
    if (extension != kUnfinished && extension != kGoing) continue;
    if (ParseCheckpointName(at->path().stem())) leftovers.push_back(at->path());
  }
  for (const fs::path& leftover : leftovers) fs::remove_all(leftover, error);
}

}  // namespace muster
