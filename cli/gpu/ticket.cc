#include "cli/gpu/ticket.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "common/base/error.h"
#include "common/base/file.h"
#include "common/base/resource_limits.h"
#include "common/base/text.h"

namespace muster {
namespace {

constexpr const char* kPrefix = "muster-gpu-job-";
constexpr size_t kMostTicketBytes = 1 << 17;
constexpr int64_t kMostWanted = 1 << 20;    // maximum number of GPUs of a valid ticket
constexpr std::time_t kAsleepSeconds = 30;  // a job without a Beat() for this long is asleep

std::string NewName() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);  // monotonic, and the same for all processes
  return fmt::format("{}{:010}.{:09}-{}", kPrefix, now.tv_sec, now.tv_nsec, ::getpid());
}

std::string TextOf(const TicketText& ticket) {
  std::string text = fmt::format("{}\npid {}\nwants {}\nwhat {}\n", static_cast<char>(ticket.state),
                                 ticket.pid, ticket.wants, OneLine(ticket.what, 200));
  for (const std::string& gpu : ticket.gpus) text += "card " + gpu + "\n";
  return text;
}

// The number in `text`, or 0 if it is missing or out of range.
int64_t NumberIn(const std::string& text, int64_t most) {
  int64_t number = 0;
  std::istringstream(text) >> number;
  return 0 < number && number <= most ? number : 0;
}

// Ignores unknown lines, because later versions may write them.
TicketText Parse(const std::string& text) {
  TicketText ticket;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  if (line == "W") ticket.state = TicketState::kWaiting;
  if (line == "H") ticket.state = TicketState::kHolding;
  while (std::getline(lines, line)) {
    const size_t space = line.find(' ');
    if (space == std::string::npos) continue;
    const std::string key = line.substr(0, space), value = line.substr(space + 1);
    if (key == "pid") ticket.pid = static_cast<pid_t>(NumberIn(value, INT32_MAX));
    if (key == "wants") ticket.wants = static_cast<size_t>(NumberIn(value, kMostWanted));
    if (key == "what") ticket.what = OneLine(value, 200);
    if (key == "card") ticket.gpus.push_back(OneLine(value, 96));
  }
  // Its job is just writing it: the rest of the longer text before is still there.
  const bool complete = ticket.gpus.size() == ticket.wants;
  if (ticket.state == TicketState::kHolding && !complete) ticket.state = TicketState::kTaking;
  return ticket;
}

std::string ReadFile(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() < kMostTicketBytes) {
    const ssize_t got = ::pread(fd, buffer.data(), buffer.size(), static_cast<off_t>(text.size()));
    if (got <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(got));
  }
  return text;
}

std::vector<std::string> TicketNames(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename();
    if (name.starts_with(kPrefix) && !name.ends_with(".new")) names.push_back(name);
  }
  std::ranges::sort(names);
  return names;
}

enum class StaleFiles { kLeave, kRemoveOwn };

std::optional<TicketText> ReadTicket(const LockFolder& folder, const std::string& name,
                                     StaleFiles stale) {
  const UniqueFd file = folder.Open(name);
  struct stat status {};
  if (!file.valid() || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode)) {
    return std::nullopt;
  }
  if (TryLock(file.get(), LockMode::kShared) == Locked::kYes) {  // its job is gone
    const bool may_remove = status.st_uid == ::geteuid() || ::geteuid() == 0;
    if (stale == StaleFiles::kRemoveOwn && may_remove) ::unlink(folder.File(name).c_str());
    return std::nullopt;
  }
  TicketText ticket = Parse(ReadFile(file.get()));
  ticket.name = name;
  ticket.user = status.st_uid;
  ticket.changed = status.st_mtime;
  ticket.asleep = ticket.state != TicketState::kHolding &&
                  std::time(nullptr) - status.st_mtime > kAsleepSeconds;
  return ticket;
}

std::vector<TicketText> ReadAll(const LockFolder& folder, StaleFiles stale) {
  std::vector<TicketText> tickets;
  for (const std::string& name : TicketNames(folder.path())) {
    if (auto ticket = ReadTicket(folder, name, stale)) tickets.push_back(std::move(*ticket));
  }
  return tickets;
}

}  // namespace

Ticket::Ticket(const LockFolder& folder, size_t wants, std::vector<std::string> gpus,
               std::string what) {
  (void)ReadAll(folder, StaleFiles::kRemoveOwn);
  text_ = {.name = NewName(),
           .pid = ::getpid(),
           .wants = wants,
           .what = std::move(what),
           .gpus = std::move(gpus)};
  path_ = folder.File(text_.name);
  file_ = folder.Make(text_.name, TextOf(text_));
  if (file_.valid()) return;
  throw Error(ExitCode::kFailure,
              "{} already exists, although no other process should use this name", path_);
}

Ticket::~Ticket() {
  // A forked child has a copy of this object, but does not own the job.
  if (::getpid() == text_.pid) ::unlink(path_.c_str());
}

void Ticket::Write() const {
  const std::string text = TextOf(text_);
  const ssize_t wrote = ::pwrite(file_.get(), text.data(), text.size(), 0);
  if (wrote == static_cast<ssize_t>(text.size()) &&
      ::ftruncate(file_.get(), static_cast<off_t>(text.size())) == 0) {
    return;
  }
  throw Error(ExitCode::kFailure, "cannot write {}, the GPU queue ticket of this job: {}", path_,
              ErrorText(errno));
}

void Ticket::SayWaiting() {
  text_.state = TicketState::kWaiting;
  Write();
}

void Ticket::SayHolding(const std::vector<std::string>& gpus) {
  text_.state = TicketState::kHolding;
  text_.gpus = gpus;
  text_.wants = gpus.size();
  Write();
}

void Ticket::Beat() const { (void)::futimens(file_.get(), nullptr); }

std::vector<TicketText> ReadTickets(const LockFolder& folder) {
  return ReadAll(folder, StaleFiles::kLeave);
}

}  // namespace muster
