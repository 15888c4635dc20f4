#include "common/program/program_link.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "common/base/error.h"
#include "common/base/resource_limits.h"

namespace muster {
namespace {

constexpr uint32_t kMostBytes = 16 << 20;

[[noreturn]] void Exit() { ::_exit(static_cast<int>(ExitCode::kPeerFailed)); }

// Forked children of the program may hold its end of the socket open, so its process is watched as
// well.
void Watch(int fd, int process, int stop) {
  pollfd fds[] = {{fd, POLLRDHUP, 0}, {process, POLLIN, 0}, {stop, POLLIN, 0}};
  while (::poll(fds, 3, -1) < 0 && errno == EINTR) {
  }
  if (fds[2].revents == 0) Exit();  // the server sees that this worker is lost
}

}  // namespace

ProgramLink::ProgramLink(UniqueFd fd, pid_t program)
    : fd_(std::move(fd)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  const int process = static_cast<int>(::syscall(SYS_pidfd_open, program, 0));
  watch_ = std::thread([fd = fd_.get(), process, stop = stop_.get()] {
    const UniqueFd closes(process);
    Watch(fd, process, stop);
  });
}

ProgramLink::ProgramLink(UniqueFd fd, pid_t program, Unwatched)
    : fd_(std::move(fd)), process_(static_cast<int>(::syscall(SYS_pidfd_open, program, 0))) {}

ProgramLink::~ProgramLink() { StopWatching(); }

void ProgramLink::StopWatching() {
  if (!watch_.joinable()) return;
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  watch_.join();
}

ProgramDescription ProgramLink::ReadDescription() {
  ProgramDescription description;
  for (;;) {
    const Received received = Receive();
    if (received.kind == program::Kind::kJoin) {
      description.join = received.As<program::Join>();
      if (description.join.version == program::kVersion) return description;
      throw Error(ExitCode::kUsage,
                  "libmuster_client.so has version {}, the programs {}: use both from the same "
                  "installation",
                  description.join.version, program::kVersion);
    }
    if (received.kind == program::Kind::kOptimizer) {
      description.optimizer = received.body;
      continue;
    }
    if (received.kind == program::Kind::kArithmetic) {
      description.arithmetic = received.body;
      continue;
    }
    program::Variable variable;
    const std::string& body = received.body;
    if (received.kind != program::Kind::kVariable || body.size() < sizeof variable) {
      throw Error(ExitCode::kPeerFailed, "the program sent frame {} before it joined",
                  static_cast<uint32_t>(received.kind));
    }
    std::memcpy(&variable, body.data(), sizeof variable);
    if (variable.dimensions > (body.size() - sizeof variable) / sizeof(int64_t)) {
      throw Error(ExitCode::kPeerFailed, "the program sent an incomplete variable");
    }
    wire::VariableShape& shape = *description.variables.Add();
    const char* at = body.data() + sizeof variable;
    for (uint32_t i = 0; i < variable.dimensions; ++i, at += sizeof(int64_t)) {
      int64_t n;
      std::memcpy(&n, at, sizeof n);
      shape.add_shape(n);
    }
    shape.set_name(std::string(at, body.data() + body.size()));
    if (variable.has_weight_decay != 0) shape.set_weight_decay(variable.weight_decay);
    if (variable.learning_rate_multiplier != 1)
      shape.set_learning_rate_multiplier(variable.learning_rate_multiplier);
    if (variable.averaged != 0) shape.set_averaged(true);
  }
}

void ProgramLink::MapMemory(size_t floats) {
  memory_ = SharedMemory::Map(std::move(memory_fd_), SharedMemory::Access::kReadWrite);
  floats_ = floats;
  if (memory_.bytes() >= 2 * floats * sizeof(float)) return;
  throw Error(ExitCode::kFailure, "the program shared {} bytes, expected {}", memory_.bytes(),
              2 * floats * sizeof(float));
}

template <typename Message>
Message ProgramLink::Received::As() const {
  Message message;
  if (body.size() != sizeof message) {
    throw Error(ExitCode::kPeerFailed, "the program sent {} bytes in frame {}, expected {}",
                body.size(), static_cast<uint32_t>(kind), sizeof message);
  }
  std::memcpy(&message, body.data(), sizeof message);
  return message;
}
template program::Join ProgramLink::Received::As() const;
template program::Loss ProgramLink::Received::As() const;
template program::Planned ProgramLink::Received::As() const;

template <typename Message>
Message ProgramLink::Received::Begin(std::string& text) const {
  const size_t bytes = std::min(body.size(), sizeof(Message));
  text = body.substr(bytes);
  return Received{kind, body.substr(0, bytes)}.As<Message>();
}
template program::Ask ProgramLink::Received::Begin(std::string&) const;
template program::Tell ProgramLink::Received::Begin(std::string&) const;

std::vector<uint64_t> ProgramLink::Received::Numbers() const {
  std::vector<uint64_t> numbers(body.size() / sizeof(uint64_t));
  std::memcpy(numbers.data(), body.data(), numbers.size() * sizeof(uint64_t));
  return numbers;
}

ProgramLink::Received ProgramLink::Receive() {
  program::Frame frame;
  if (!Read(&frame, sizeof frame)) Gone();
  if (frame.bytes > kMostBytes) {
    throw Error(ExitCode::kPeerFailed, "the program sent a frame of {} bytes", frame.bytes);
  }
  Received received{.kind = frame.kind, .body = std::string(frame.bytes, '\0')};
  if (!Read(received.body.data(), frame.bytes)) Gone();
  return received;
}

bool ProgramLink::HasInput(std::chrono::milliseconds patience) const {
  pollfd fds[] = {{fd_.get(), POLLIN, 0}, {process_.get(), POLLIN, 0}};  // -1 is ignored
  return ::poll(fds, 2, static_cast<int>(patience.count())) > 0;
}

// Reads all bytes, and keeps a descriptor that comes with them. Returns false at the end.
bool ProgramLink::Read(void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    iovec part{at, bytes};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    if (!AwaitBytes()) return false;
    const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) errno = 0;
    if (got <= 0) return false;
    const cmsghdr* const header = CMSG_FIRSTHDR(&message);
    if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      memory_fd_.Reset(fd);
    }
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return true;
}

void ProgramLink::Send(program::Kind kind, const void* message, size_t bytes,
                       std::span<const int64_t> indices, const std::string& text) {
  const program::Frame frame{kind,
                             static_cast<uint32_t>(bytes + indices.size_bytes() + text.size())};
  Write(&frame, sizeof frame);
  Write(message, bytes);
  Write(indices.data(), indices.size_bytes());
  Write(text.data(), text.size());
}

void ProgramLink::Write(const void* from, size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd_.get(), at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) Gone();
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
}

void ProgramLink::Gone() {
  while (watch_.joinable()) ::pause();  // the watching thread ends this process
  if (errno == EAGAIN) Silent();
  throw Error(ExitCode::kPeerFailed, "the program has ended");
}

void ProgramLink::Silent() const {
  throw Error(ExitCode::kDeadline,
              "the process of the program that updates the weights (MUSTER_RANK=-1) has not "
              "answered within {:g} s: see its messages in server.log; does it wait for a process "
              "of its own, such as one of a multiprocessing.Pool that was killed?",
              limit_s_);
}

void ProgramLink::Limit(double seconds) {
  limit_s_ = seconds;
  const timeval limit{.tv_sec = static_cast<time_t>(std::ceil(seconds)), .tv_usec = 0};
  (void)::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

// Returns false, with errno, if the process has ended or is silent for too long. Forked children of
// the program may hold its end of the socket open.
bool ProgramLink::AwaitBytes() const {
  if (!process_.valid()) return true;
  pollfd fds[] = {{fd_.get(), POLLIN, 0}, {process_.get(), POLLIN, 0}};
  int ready;
  while ((ready = ::poll(fds, 2, static_cast<int>(std::ceil(limit_s_ * 1000)))) < 0 &&
         errno == EINTR) {
  }
  errno = ready == 0 ? EAGAIN : 0;
  return fds[0].revents != 0;
}

}  // namespace muster
