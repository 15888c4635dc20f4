#include "common/base/file_lock.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>

#include "common/base/error.h"
#include "common/base/process.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterval{20};
// The longest time between taking the lock and writing the holder's name. The holder may have to
// wait for a CPU.
constexpr std::chrono::seconds kUntilSaid{2};
constexpr const char* kFree = "free\n";

std::string On(const std::string& host) { return " on host " + host; }
std::string ThisHolder() { return fmt::format("pid {}{}\n", ::getpid(), On(HostName())); }

std::string ReadAll(int fd) {
  std::array<char, 600> text{};
  const ssize_t size = ::pread(fd, text.data(), text.size(), 0);
  return {text.data(), static_cast<size_t>(std::max<ssize_t>(size, 0))};
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

// Whether this text may name the current holder. An earlier holder's process has usually ended.
bool MayHold(const std::string& text) {
  const std::string host = On(HostName());
  if (!text.starts_with("pid ") || !text.ends_with(host)) return !text.empty();
  const auto pid = static_cast<pid_t>(std::atol(text.c_str() + 4));
  return pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM);
}

// Returns the name of the current holder. Waits for it, because a new holder writes its name
// shortly after taking the lock.
std::string HolderOf(int fd) {
  // Anything after the first line may be left over from an earlier holder.
  std::string text = FirstLine(ReadAll(fd));
  for (const auto end = Clock::now() + kUntilSaid; !MayHold(text) && Clock::now() < end;) {
    std::this_thread::sleep_for(kInterval);
    text = FirstLine(ReadAll(fd));
  }
  // A holder that may only read the file cannot write its name.
  return MayHold(text) ? text : "an unknown process";
}

// Another user's lock may be read-only, which is enough to take it, and the kernel may forbid
// O_CREAT for it (fs.protected_regular). Returns none if the file cannot be created.
UniqueFd OpenLock(const std::string& path) {
  int error = 0;
  for (const int flags : {O_RDWR, O_RDWR | O_CREAT, O_RDONLY}) {
    UniqueFd fd(::open(path.c_str(), flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
    if (fd.valid()) return fd;
    error = errno;
  }
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  throw Error(ExitCode::kUsage,
              "{}: the lock of user {} cannot be opened ({}), so nobody knows whether it is held; "
              "expected a file that you may read",
              path, status.st_uid, S_ISLNK(status.st_mode) ? "a symbolic link" : ErrorText(error));
}

// Whether locks of this file may be kept from other hosts, according to how it is mounted. See
// proc_pid_mountinfo(5): the third field is the device, the one after " - " the type.
bool LocksStayOnThisHost(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return false;
  const std::string device = fmt::format(" {}:{} ", ::major(status.st_dev), ::minor(status.st_dev));
  std::ifstream file("/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t dash = line.find(" - ");
    if (line.find(device) > dash || dash == std::string::npos) continue;
    std::istringstream words(line.substr(dash + 3));
    std::string type, source, options;
    words >> type >> source >> options;
    if (type == "fuse" || type.starts_with("fuse.")) return true;
    for (const char* option :
         {"nolock", "local_lock=flock", "local_lock=all", "localflock", "nobrl"}) {
      if ((options + ",").find("," + std::string(option) + ",") != std::string::npos) return true;
    }
  }
  return false;
}

// ---------------------------------------------------------------------------------- leases

std::string LeaseName(const std::string& path, uint64_t number) {
  return fmt::format("{}.lease-{}", fs::path(path).filename().native(), number);
}

// The numbers of the leases of this lock in this folder, in no order.
std::vector<uint64_t> Leases(int folder, const std::string& path) {
  std::vector<uint64_t> numbers;
  const std::string prefix = fs::path(path).filename().native() + ".lease-";
  // A description of its own, because the position is the description's.
  const int fd = ::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(fd < 0 ? nullptr : ::fdopendir(fd), ::closedir);
  while (const dirent* const entry = entries ? ::readdir(entries.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    if (!name.starts_with(prefix)) continue;
    uint64_t number = 0;
    const char* const end = name.data() + name.size();
    const auto [at, error] = std::from_chars(name.data() + prefix.size(), end, number);
    // Nobody has come so far by adding one, and adding one to it must not overflow.
    constexpr uint64_t kMost = uint64_t{1} << 60;
    if (error == std::errc() && at == end && number > 0 && number < kMost)
      numbers.push_back(number);
  }
  return numbers;
}

uint64_t LastLease(int folder, const std::string& path) {
  const std::vector<uint64_t> numbers = Leases(folder, path);
  return numbers.empty() ? 0 : *std::ranges::max_element(numbers);
}

// Processes of one host name that cannot see each other, in containers or on hosts with the same
// name, have different ones.
std::string ProcessSpace() {
  std::error_code error;
  const fs::path space = fs::read_symlink("/proc/self/ns/pid", error);
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  return (error ? "unknown" : space.native()) + boot;
}

std::string LeaseText(uint64_t beat) {
  return fmt::format("{}started {} in {}\nbeat {}\n", ThisHolder(), ThisProcess().started,
                     ProcessSpace(), beat);
}

// Whether the holder that this lease names lives; empty if this process cannot know.
std::optional<bool> IsHolderAlive(const std::string& text) {
  std::istringstream words(text);
  std::string skipped, host, space;
  ProcessIdentity holder;
  words >> skipped >> holder.pid >> skipped >> skipped >> host;
  words >> skipped >> holder.started >> skipped >> space;
  if (!words || host != HostName() || space != ProcessSpace()) return std::nullopt;
  return IsAlive(holder);
}

}  // namespace

FileLock::FileLock(const std::string& path, const LockTerms& terms) : path_(path), terms_(terms) {
  bool by_flock = false;
  do {  // again if the holder before removed the file
    fd_ = OpenLock(path);
    if (!fd_.valid()) return;
    by_flock = TakeFile();
  } while (held_ && !IsStillAt(fd_.get(), path));
  if (held_ && (!by_flock || LocksStayOnThisHost(fd_.get()))) TakeLease();
  if (!held_) return;
  const std::string name = ThisHolder();
  (void)!::pwrite(fd_.get(), name.data(), name.size(), 0);
  (void)!::ftruncate(fd_.get(), static_cast<off_t>(name.size()));
}

bool FileLock::TakeFile() {
  const Locked first = terms_.lock(fd_.get(), LockMode::kExclusive);
  // NFS locks a file only for who may write it, so its owner may hold it unseen.
  if (first == Locked::kCannot && (::fcntl(fd_.get(), F_GETFL) & O_ACCMODE) == O_RDONLY) {
    throw Error(ExitCode::kUsage,
                "{}: this file system locks only files that you may write, so nobody knows whether "
                "it is held; expected a file that you may write",
                path_);
  }
  const bool by_flock = first == Locked::kTaken || (first == Locked::kYes && Excludes());
  if (by_flock) TakeFlock(terms_.wait_s);
  return by_flock;
}

FileLock::~FileLock() {
  refresher_ = {};
  if (lease_.valid()) WriteLease(kFree);
}

// Whether a second description of the file does not get the lock that this one has.
bool FileLock::Excludes() const {
  const int flags = ::fcntl(fd_.get(), F_GETFL) & O_ACCMODE;
  const std::string self = fmt::format("/proc/self/fd/{}", fd_.get());
  const UniqueFd other(::open(self.c_str(), flags | O_CLOEXEC | O_NONBLOCK));
  return !other.valid() || terms_.lock(other.get(), LockMode::kExclusive) == Locked::kTaken;
}

void FileLock::TakeFlock(double wait_s) {
  const auto end = Clock::now() + std::chrono::duration<double>(wait_s);
  while (terms_.lock(fd_.get(), LockMode::kExclusive) == Locked::kTaken) {
    held_ = Clock::now() < end;
    if (!held_) {
      holder_ = HolderOf(fd_.get());
      return;
    }
    std::this_thread::sleep_for(kInterval);
  }
}

void FileLock::TakeLease() {
  folder_.Reset(::open(fs::path(path_).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto end = Clock::now() + std::chrono::duration<double>(terms_.wait_s);
  uint64_t seen = 0;
  std::string text, before;
  auto changed = Clock::now(), looked = changed;
  bool beats = false;  // it was refreshed while this process looked
  for (;; std::this_thread::sleep_for(kInterval)) {
    // While this process was suspended, or the file system stood still, the holder may have been,
    // too.
    const auto now = Clock::now();
    if (now - looked > kUntilSaid) changed += now - looked;
    looked = now;
    const uint64_t last = LastLease(folder_.get(), path_);
    const UniqueFd fd(
        ::openat(folder_.get(), LeaseName(path_, last).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    const bool is_readable = fd.valid() || errno == ENOENT;
    text = last == 0 ? kFree : fd.valid() ? ReadAll(fd.get()) : "";
    const bool is_free = text.starts_with(kFree);
    if (last != seen || text != before) {
      beats = seen == last && !before.empty();
      changed = Clock::now();
      seen = last;
      before = text;
    }
    std::optional<bool> alive = IsHolderAlive(text);
    if ((!alive && beats) || !is_readable) alive = true;
    if (!alive && Clock::now() - changed >= terms_.silence) alive = false;
    if ((is_free || alive == false) && CreateLease(last + 1)) return;
    // Nothing is known if the folder cannot be listed.
    const bool in_vain = Clock::now() >= end + 2 * terms_.silence;
    if ((!is_free && alive == true && Clock::now() >= end) || in_vain) {
      held_ = false;
      holder_ = in_vain || !is_readable ? "an unknown process" : FirstLine(text);
      return;
    }
  }
}

// Returns false if another process was faster.
bool FileLock::CreateLease(uint64_t number) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  lease_.Reset(::openat(folder_.get(), LeaseName(path_, number).c_str(), kFlags, 0666));
  if (!lease_.valid()) return errno != EEXIST;  // nobody can write here
  number_ = number;
  WriteLease(LeaseText(0));
  const std::vector<uint64_t> all_leases = Leases(folder_.get(), path_);
  // What this process knew may have been old: others have come, and some have gone.
  const bool is_last = std::ranges::all_of(all_leases, [&](uint64_t one) { return one <= number; });
  for (const uint64_t one : all_leases) {
    if (one < number || (one == number && !is_last)) {
      ::unlinkat(folder_.get(), LeaseName(path_, one).c_str(), 0);
    }
  }
  if (!is_last) {
    lease_.Reset();
    return false;
  }
  // A signal must not arrive in the thread, which would handle it in the wrong way.
  sigset_t all, mask;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &mask);
  refresher_ = std::jthread([this](const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    for (uint64_t beat = 1; !wakes_.wait_for(lock, stop, terms_.beat, [] { return false; });
         ++beat) {
      if (stop.stop_requested()) return;
      Refresh();
      WriteLease(LeaseText(beat));
    }
  });
  ::pthread_sigmask(SIG_SETMASK, &mask, nullptr);
  return true;
}

void FileLock::WriteLease(const std::string& text) const {
  (void)!::pwrite(lease_.get(), text.data(), text.size(), 0);
  (void)!::ftruncate(lease_.get(), static_cast<off_t>(text.size()));
}

// Ends this process if another one has taken over.
void FileLock::Refresh() {
  const uint64_t last = LastLease(folder_.get(), path_);
  if (last <= number_) return;
  const std::string text = fmt::format(
      "muster: error: {}: another process has taken this lock, because this one was "
      "suspended or cut off for {} s: ending, so that only one writes there\n",
      path_, std::chrono::duration_cast<std::chrono::seconds>(terms_.silence).count());
  (void)!::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(static_cast<int>(ExitCode::kFailure));
}

std::string FileLock::PathNow() const {
  std::error_code error;
  const fs::path path = fs::read_symlink(fmt::format("/proc/self/fd/{}", fd_.get()), error);
  return !error && IsStillAt(fd_.get(), path) ? path.string() : "";
}

void FileLock::Remove(const std::string& path) {
  const UniqueFd folder(
      ::open(fs::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  for (const uint64_t number : Leases(folder.get(), path)) {
    ::unlinkat(folder.get(), LeaseName(path, number).c_str(), 0);
  }
  ::unlink(path.c_str());
}

}  // namespace muster
