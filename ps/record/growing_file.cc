#include "ps/record/growing_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"

namespace muster {

GrowingFile::GrowingFile(std::string path, int how, int64_t first, Warn warn)
    : path_(std::move(path)), first_(first), warn_(std::move(warn)) {
  if (path_.empty()) return;
  fd_ = OpenPlainFile(path_, "a plain file", O_WRONLY | O_CREAT | O_APPEND | how);
  if (fd_.valid()) return;
  throw Error(ExitCode::kFailure, "{}: cannot be opened: {}", path_, ErrorText(errno));
}

void GrowingFile::StartAt(std::string_view text, std::string pending) {
  bytes_ = std::ssize(text);
  hash_ = {};
  hash_.Add(text);
  unwritten_ = std::move(pending);
  if (fd_.valid() && ::ftruncate(fd_.get(), first_ + bytes_) != 0) {
    throw Error(ExitCode::kFailure, "{}: cannot be truncated to {} bytes: {}", path_,
                first_ + bytes_, ErrorText(errno));
  }
}

void GrowingFile::Append(std::string_view text) {
  if (!fd_.valid()) return;
  unwritten_ += text;
  Write();
  WarnIfRemoved();
}

void GrowingFile::TryAgain() {
  if (retry_.IsDue()) Write();
}

void GrowingFile::Write() {
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
  if (retry_.Note(trouble)) warn_(trouble + ". The run continues; retrying later");
}

void GrowingFile::WarnIfRemoved() {
  struct stat status {};
  if (removal_reported_ || ::fstat(fd_.get(), &status) != 0 || status.st_nlink > 0) return;
  removal_reported_ = true;
  warn_(fmt::format("{} was removed: the run continues, but what comes next is lost", path_));
}

std::string GrowingFile::Read() const {
  std::string text = ReadFileIfThere(path_);
  return text.erase(0, std::min(text.size(), static_cast<size_t>(first_)));
}

checkpoint::GrownFile GrowingFile::Keep() const {
  checkpoint::GrownFile kept;
  kept.set_bytes(bytes_);
  kept.set_unwritten(unwritten_);
  kept.set_xxh3(hash_.value());
  return kept;
}

bool Continues(std::string_view text, const checkpoint::GrownFile& kept) {
  const auto bytes = static_cast<size_t>(kept.bytes());
  return kept.has_xxh3() && text.size() >= bytes && HashOf(text.substr(0, bytes)) == kept.xxh3();
}

}  // namespace muster
