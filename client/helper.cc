#include "client/helper.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "client/muster.h"

namespace muster::program {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kGoodbye{5};

std::string InEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The muster-worker of this installation: beside the launcher, or relative to this library.
std::string FindProgram() {
  std::vector<std::string> folders;
  if (std::string folder = InEnvironment("MUSTER_PROGRAMS"); !folder.empty())
    folders.push_back(std::move(folder));
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&muster_create), &info) != 0) {
    const std::string library = info.dli_fname;
    const std::string folder = library.substr(0, library.rfind('/') + 1);
    for (const char* place : {"", "../bin/", "../../bin/"}) folders.push_back(folder + place);
  }
  for (const std::string& folder : folders) {
    std::string path = folder + "/muster-worker";
    if (::access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

}  // namespace

Helper::~Helper() {
  if (fd_ >= 0) ::close(fd_);
  if (pid_ <= 0) return;
  const Clock::time_point until = Clock::now() + kGoodbye;
  while (::waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (Clock::now() > until) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
      return;
    }
    ::usleep(2000);
  }
}

int Helper::Start(std::string& why) {
  if (const std::string number = InEnvironment("MUSTER_UPDATE_FD"); !number.empty()) {
    ::unsetenv("MUSTER_UPDATE_FD");
    fd_ = std::atoi(number.c_str());
    struct stat status {};
    if (fd_ > 2 && ::fstat(fd_, &status) == 0 && S_ISSOCK(status.st_mode)) {
      ::fcntl(fd_, F_SETFD, FD_CLOEXEC);
      return MUSTER_OK;
    }
    fd_ = -1;
    why =
        "the connection to the server (MUSTER_UPDATE_FD) is closed: expected a command after -- "
        "that leaves open files to the program that it starts";
    return MUSTER_USAGE;
  }
  const std::string endpoint = InEnvironment("MUSTER_ENDPOINT"),
                    config = InEnvironment("MUSTER_CONFIG"), rank = InEnvironment("MUSTER_RANK");
  if (endpoint.empty() || config.empty() || rank.empty()) {
    why =
        "MUSTER_ENDPOINT, MUSTER_CONFIG or MUSTER_RANK is not set: start this program with `muster "
        "launch -- COMMAND`";
    return MUSTER_USAGE;
  }
  const std::string program = FindProgram();
  if (program.empty()) {
    why = "muster-worker was not found: set MUSTER_PROGRAMS to the folder of Muster's programs";
    return MUSTER_USAGE;
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    why = std::string("socketpair: ") + std::strerror(errno);
    return MUSTER_FAILURE;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // dup2 onto itself clears the close-on-exec flag, so the socket keeps its number in the helper.
  posix_spawn_file_actions_adddup2(&actions, ends[1], ends[1]);
  const std::string number = std::to_string(ends[1]);
  const char* words[] = {program.c_str(), "program",        "--config", config.c_str(),
                         "--endpoint",    endpoint.c_str(), "--rank",   rank.c_str(),
                         "--fd",          number.c_str(),   nullptr};
  const int error = ::posix_spawn(&pid_, program.c_str(), &actions, nullptr,
                                  const_cast<char* const*>(words), ::environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  fd_ = ends[0];
  ::unsetenv("MUSTER_TOKEN");  // nobody else needs it
  if (error == 0) return MUSTER_OK;
  pid_ = -1;
  why = "cannot start " + program + ": " + std::strerror(error);
  return MUSTER_FAILURE;
}

bool Helper::Send(Kind kind, const void* body, size_t bytes, int with_fd) {
  Frame frame{kind, static_cast<uint32_t>(bytes)};
  iovec parts[] = {{&frame, sizeof frame}, {const_cast<void*>(body), bytes}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (with_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &with_fd, sizeof with_fd);
  }
  size_t left = sizeof frame + bytes;
  while (left > 0) {
    const ssize_t sent = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    left -= static_cast<size_t>(sent);
    message.msg_control = nullptr;  // travels with the first byte
    message.msg_controllen = 0;
    auto rest = static_cast<size_t>(sent);
    for (iovec& part : parts) {
      const size_t of_part = rest < part.iov_len ? rest : part.iov_len;
      part.iov_base = static_cast<char*>(part.iov_base) + of_part;
      part.iov_len -= of_part;
      rest -= of_part;
    }
  }
  return true;
}

bool Helper::Receive(Kind& kind, std::string& body) {
  Frame frame{};
  if (!Read(&frame, sizeof frame)) return false;
  kind = frame.kind;
  body.resize(frame.bytes);
  return Read(body.data(), body.size());
}

bool Helper::Read(void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd_, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

bool Helper::Await(double seconds) {
  constexpr double kMost = 60;
  const Clock::time_point began = Clock::now();
  for (;;) {
    double left = kMost;
    if (seconds >= 0) {
      left = seconds - std::chrono::duration<double>(Clock::now() - began).count();
      if (left < 0) return false;
    }
    pollfd one{fd_, POLLIN, 0};
    const int ready =
        ::poll(&one, 1, static_cast<int>(std::ceil((left < kMost ? left : kMost) * 1000)));
    if (ready > 0) return true;
    if (ready < 0 && seconds >= 0) return false;
  }
}

}  // namespace muster::program
