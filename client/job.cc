#include "client/job.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

using namespace muster::program;

muster_job::~muster_job() {
  if (memory != nullptr) ::munmap(memory, 2 * floats * sizeof(float));
  if (memory_fd >= 0) ::close(memory_fd);
}

int muster_job::Fail(int code, const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  error = text;
  if (code != MUSTER_USAGE) is_over = true;
  return code;
}

bool muster_job::Allocate() {
  if (memory != nullptr) return true;
  if (variables.empty()) {
    Fail(MUSTER_USAGE, "there is no variable: call muster_add_variable first");
    return false;
  }
  const size_t bytes = 2 * floats * sizeof(float);
  const auto fail = [&](int code) {
    Fail(MUSTER_FAILURE, "cannot allocate %zu bytes of shared memory: %s", bytes,
         std::strerror(code));
    return false;
  };
  memory_fd = ::memfd_create("muster-program", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory_fd < 0 || ::ftruncate(memory_fd, static_cast<off_t>(bytes)) != 0) return fail(errno);
  // Reserves the pages, so that a lack of memory is an error here and not a signal later.
  if (const int code = ::posix_fallocate(memory_fd, 0, static_cast<off_t>(bytes)); code != 0)
    return fail(code);
  if (::fcntl(memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0) return fail(errno);
  void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
  if (at == MAP_FAILED) return fail(errno);
  memory = static_cast<float*>(at);
  return true;
}

int muster_job::Send(Kind kind, const void* body, size_t bytes, int with_fd) {
  if (helper.Send(kind, body, bytes, with_fd)) return MUSTER_OK;
  // What the helper has said before its end explains more.
  std::string text;
  if (helper.Await(1) && helper.Receive(kind, text) && kind == Kind::kEnd) return ReadEnd(text);
  return Lost();
}

int muster_job::Receive(Kind& kind, std::string& body) {
  return helper.Receive(kind, body) ? MUSTER_OK : Lost();
}

int muster_job::Lost() {
  if (is_over) return MUSTER_PEER_FAILED;
  return Fail(MUSTER_PEER_FAILED, "%s has ended; see its messages",
              helper.is_server() ? "the server" : "the helper process muster-worker");
}

int muster_job::ReadEnd(const std::string& body) {
  End end{};
  if (body.size() < sizeof end) return Lost();
  std::memcpy(&end, body.data(), sizeof end);
  is_over = true;
  has_last_weights = end.has_last_weights != 0;
  steps = end.steps;
  error = body.substr(sizeof end);
  return end.code;
}

int muster_job::RequireWork(const char* call) {
  if (asked_value) return Fail(MUSTER_USAGE, "%s: repeat muster_ask first", call);
  if (at_work && !Updates()) return MUSTER_OK;
  return Fail(MUSTER_USAGE, "%s: there is no current slice or block", call);
}

int muster_job::CheckKey(const char* call, const char* key) {
  const size_t bytes = key == nullptr ? 0 : std::strlen(key);
  if (!has_joined || is_over) return Fail(MUSTER_USAGE, "%s: this job is not running", call);
  if (bytes == 0 || bytes > kMostKeyBytes)
    return Fail(MUSTER_USAGE, "%s: expected a key of 1 to 256 bytes", call);
  if (asked) return Fail(MUSTER_USAGE, "%s: repeat muster_next first", call);
  if (asked_value && asked_key != key) {
    return Fail(MUSTER_USAGE, "%s \"%s\": repeat muster_ask \"%s\" first", call, key,
                asked_key.c_str());
  }
  return MUSTER_OK;
}
