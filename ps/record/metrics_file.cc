#include "ps/record/metrics_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <sstream>
#include <utility>

#include "common/base/atomic_file.h"
#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/log.h"
#include "common/base/resource_limits.h"
#include "ps/record/restart_record.h"

namespace muster {

MetricsFile::MetricsFile(std::string path, const checkpoint::GrownFile* resumed, Warn warn)
    : path_(std::move(path)),
      resumed_(resumed != nullptr ? std::optional(*resumed) : std::nullopt),
      warn_(std::move(warn)) {
  if (path_.empty()) return;
  const int how = resumed_ ? 0 : O_EXCL;
  fd_ = OpenPlainFile(path_, "a plain file", O_WRONLY | O_CREAT | how | O_APPEND);
  if (fd_.valid()) return;
  throw Error(ExitCode::kFailure, "{}: cannot be {}: {}", path_, resumed_ ? "opened" : "created",
              ErrorText(errno));
}

MetricsFile::Kept MetricsFile::Cut(const DueLines& due) {
  if (!resumed_ || !fd_.valid()) return {};
  std::string text = ReadFileIfThere(path_);
  unwritten_ = resumed_->unwritten();
  auto bytes = static_cast<size_t>(resumed_->bytes());
  const bool as_it_was = resumed_->has_xxh3() && text.size() >= bytes &&
                         HashOf(std::string_view(text).substr(0, bytes)) == resumed_->xxh3();
  if (!as_it_was) bytes = FindCut(text, due);
  KeepEvents(std::string_view(text).substr(0, bytes), std::string_view(text).substr(bytes));
  bytes_ = static_cast<int64_t>(bytes);
  if (text.size() > bytes && ::ftruncate(fd_.get(), bytes_) != 0) {
    throw Error(ExitCode::kFailure, "{}: cannot be truncated to {} bytes: {}", path_, bytes,
                ErrorText(errno));
  }
  text.resize(bytes);
  hash_.Add(text);
  text += unwritten_;
  return {ReadMetricsEvents(text).restarts, text};
}

// Makes the event lines in `removed` pending. A server that is killed before it has written them
// would lose them, so another file has them until then. The next server also reads that file.
void MetricsFile::KeepEvents(std::string_view kept, std::string_view removed) {
  const std::string path = EventsPath();
  std::string events;
  for (const std::string& line :
       ReadMetricsEvents(ReadFileIfThere(path) + std::string(removed)).lines) {
    if (kept.find(line) != kept.npos || unwritten_.find(line) != kept.npos) continue;
    events += line;
    unwritten_ += line;
  }
  try {
    if (!events.empty()) WriteFileAtomically(path, events);
  } catch (const Error& error) {  // for example a full disk, which need not end the run
    LogWarning("{}", error.what());
  }
  std::error_code ignored;
  has_events_file_ = std::filesystem::is_regular_file(path, ignored);
}

void MetricsFile::RemoveEventsFile() {
  if (::fsync(fd_.get()) != 0) return;
  std::error_code ignored;
  std::filesystem::remove(EventsPath(), ignored);
  has_events_file_ = false;
}

std::string MetricsFile::EventsPath() const {
  return std::filesystem::path(path_).replace_filename("metrics-events.jsonl");
}

// Called if the file differs from the checkpoint's record, or the checkpoint is from a version that
// stored no hash.
size_t MetricsFile::FindCut(std::string_view text, const DueLines& due) {
  const size_t bytes = KeptLinesOf(text, due).bytes;
  const std::string_view kept = text.substr(0, bytes);
  std::istringstream lines(std::exchange(unwritten_, ""));
  for (std::string line; std::getline(lines, line);) {  // skips lines that were written later
    line += '\n';
    if (kept.find(line) == std::string_view::npos) unwritten_ += line;
  }
  const bool expected = !resumed_->has_xxh3() && static_cast<int64_t>(bytes) == resumed_->bytes();
  if (!expected && bytes < text.size()) PutAside(text.substr(bytes));
  const std::string lacking = LackingText(due, KeptLinesOf(std::string(kept) + unwritten_, due));
  if (!lacking.empty()) {
    warn_(fmt::format(
        "{}: the file was changed; {}. The weights are intact and the run continues, but only "
        "repeating the run restores these lines",
        path_, lacking));
  }
  return bytes;
}

// Archives the lines, because a person may have added them.
void MetricsFile::PutAside(std::string_view lines) {
  const std::string path = std::filesystem::path(path_).replace_filename("metrics-cut.jsonl");
  try {
    WriteFileAtomically(path, ReadFileIfThere(path) + std::string(lines));
  } catch (const Error& error) {
    throw Error(ExitCode::kFailure,
                "{}: the file was changed, and its last lines could not be archived: {}", path_,
                error.what());
  }
  LogWarning("{}: the file was changed; lines after the checkpoint were moved to {}", path_, path);
}

void MetricsFile::Append(std::string_view lines) {
  if (!fd_.valid()) return;
  unwritten_ += lines;
  WriteUnwritten();
  WarnIfRemoved();
}

void MetricsFile::TryAgain() {
  if (retry_.IsDue()) WriteUnwritten();
}

void MetricsFile::WriteUnwritten() {
  std::string trouble;
  while (!unwritten_.empty()) {
    const ssize_t n = ::write(fd_.get(), unwritten_.data(), unwritten_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      trouble = fmt::format("{}: cannot be written: {}", path_, ErrorText(errno));
      break;
    }
    bytes_ += n;
    hash_.Add(std::string_view(unwritten_).substr(0, static_cast<size_t>(n)));
    unwritten_.erase(0, static_cast<size_t>(n));
  }
  if (has_events_file_ && unwritten_.empty()) RemoveEventsFile();
  if (retry_.Note(trouble)) warn_(trouble + ". The run continues; retrying later");
}

void MetricsFile::WarnIfRemoved() {
  struct stat status {};
  if (removal_reported_ || ::fstat(fd_.get(), &status) != 0 || status.st_nlink > 0) return;
  removal_reported_ = true;
  warn_(fmt::format("{} was removed: the run continues, but its new metrics are lost", path_));
}

checkpoint::GrownFile MetricsFile::Keep() const {
  checkpoint::GrownFile kept;
  kept.set_bytes(bytes_);
  kept.set_unwritten(unwritten_);
  kept.set_xxh3(hash_.value());
  return kept;
}

}  // namespace muster
