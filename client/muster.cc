// libmuster_client.so: the program's end of worker/program/messages.h. It depends on nothing but
// the C library, so it fits into any process: protobuf and ZeroMQ are in the helper process.
#include "client/muster.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "worker/program/messages.h"

using namespace muster::program;

namespace {

constexpr size_t kAlignFloats = 16;
constexpr int kMostDimensions = 64;
constexpr std::chrono::seconds kHelperEnds{5};

struct Described {
  std::string name;
  std::vector<int64_t> shape;
  Variable settings{};
  size_t offset = 0;  // in floats
};

std::string InEnvironment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool IsProgram(const std::string& path) { return ::access(path.c_str(), X_OK) == 0; }

// The muster-worker of this installation: beside the launcher, or relative to this library.
std::string FindHelper() {
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
    if (IsProgram(path)) return path;
  }
  return "";
}

}  // namespace

struct muster_job {
  std::string error;
  std::vector<Described> variables;
  size_t floats = 0;        // of one buffer
  float* memory = nullptr;  // weights, then gradient
  int memory_fd = -1;
  int fd = -1;
  pid_t helper = -1;
  Joined joined{};
  bool has_joined = false, is_over = false, has_last_weights = false;
  bool asked = false;  // Next was sent, and the answer has not come
  bool at_work = false, has_reported = false;
  std::vector<int64_t> samples;
  muster_work work{};

  ~muster_job();
  __attribute__((format(printf, 3, 4))) int Fail(int code, const char* format, ...);
  bool Allocate();
  int Start();
  int Send(Kind kind, const void* body, size_t bytes, int with_fd = -1);
  int SendText(Kind kind, const std::string& text) { return Send(kind, text.data(), text.size()); }
  int Lost();
  int Read(void* to, size_t bytes);
  // Waits for a frame, at most until `seconds` have passed.
  int Await(double seconds);
  int Receive(Frame& frame, std::string& body);
  int ReadEnd(const std::string& body);
  int RequireWork(const char* call);
};

muster_job::~muster_job() {
  if (fd >= 0) ::close(fd);
  if (helper > 0) {  // it ends by itself, and says goodbye to the server before
    const auto until = std::chrono::steady_clock::now() + kHelperEnds;
    while (::waitpid(helper, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > until) {
        ::kill(helper, SIGKILL);
        ::waitpid(helper, nullptr, 0);
        break;
      }
      ::usleep(2000);
    }
  }
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
  memory_fd = ::memfd_create("muster-program", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (memory_fd >= 0 && ::ftruncate(memory_fd, static_cast<off_t>(bytes)) == 0 &&
      ::posix_fallocate(memory_fd, 0, static_cast<off_t>(bytes)) == 0 &&
      ::fcntl(memory_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0) {
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    if (at != MAP_FAILED) {
      memory = static_cast<float*>(at);
      return true;
    }
  }
  Fail(MUSTER_FAILURE, "cannot allocate %zu bytes of shared memory: %s", bytes,
       std::strerror(errno));
  return false;
}

// Starts the helper. Its socket keeps its number in the helper.
int muster_job::Start() {
  const std::string endpoint = InEnvironment("MUSTER_ENDPOINT"),
                    config = InEnvironment("MUSTER_CONFIG"), rank = InEnvironment("MUSTER_RANK");
  if (endpoint.empty() || config.empty() || rank.empty()) {
    return Fail(MUSTER_USAGE,
                "MUSTER_ENDPOINT, MUSTER_CONFIG or MUSTER_RANK is not set: start this program with "
                "`muster launch CONFIG -- COMMAND`");
  }
  const std::string helper_path = FindHelper();
  if (helper_path.empty()) {
    return Fail(MUSTER_USAGE,
                "muster-worker was not found: set MUSTER_PROGRAMS to the folder of Muster's "
                "programs");
  }
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return Fail(MUSTER_FAILURE, "socketpair: %s", std::strerror(errno));
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // dup2 onto itself clears the close-on-exec flag.
  posix_spawn_file_actions_adddup2(&actions, ends[1], ends[1]);
  const std::string number = std::to_string(ends[1]);
  const char* arguments[] = {helper_path.c_str(), "--config", config.c_str(), "--endpoint",
                             endpoint.c_str(),    "--rank",   rank.c_str(),   "--program-fd",
                             number.c_str(),      nullptr};
  const int code = ::posix_spawn(&helper, helper_path.c_str(), &actions, nullptr,
                                 const_cast<char* const*>(arguments), ::environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  fd = ends[0];
  ::unsetenv("MUSTER_TOKEN");  // nobody else needs it
  if (code == 0) return MUSTER_OK;
  helper = -1;
  return Fail(MUSTER_FAILURE, "cannot start %s: %s", helper_path.c_str(), std::strerror(code));
}

int muster_job::Lost() {
  if (is_over) return MUSTER_PEER_FAILED;
  return Fail(MUSTER_PEER_FAILED, "the helper process muster-worker has ended; see its messages");
}

int muster_job::Send(Kind kind, const void* body, size_t bytes, int with_fd) {
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
    const ssize_t sent = ::sendmsg(fd, &message, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) {
      // What the helper has said before its end explains more.
      if (Await(1) == MUSTER_OK) {
        std::string text;
        if (Receive(frame, text) == MUSTER_OK && frame.kind == Kind::kEnd) return ReadEnd(text);
      }
      return Lost();
    }
    left -= static_cast<size_t>(sent);
    message.msg_control = nullptr;
    message.msg_controllen = 0;
    auto rest = static_cast<size_t>(sent);
    for (iovec& part : parts) {
      const size_t of_part = rest < part.iov_len ? rest : part.iov_len;
      part.iov_base = static_cast<char*>(part.iov_base) + of_part;
      part.iov_len -= of_part;
      rest -= of_part;
    }
  }
  return MUSTER_OK;
}

int muster_job::Await(double seconds) {
  const auto limit = std::chrono::duration<double>(seconds);
  const auto began = std::chrono::steady_clock::now();
  for (;;) {
    const double left = (limit - (std::chrono::steady_clock::now() - began)).count();
    const bool forever = seconds < 0;
    if (!forever && left < 0) return MUSTER_AGAIN;
    const double wait_s = forever || left > 60 ? 60 : left;
    pollfd one{fd, POLLIN, 0};
    const int ready = ::poll(&one, 1, static_cast<int>(std::ceil(wait_s * 1000)));
    if (ready > 0) return MUSTER_OK;
    if (ready < 0 && errno == EINTR && !forever) return MUSTER_AGAIN;
  }
}

int muster_job::Read(void* to, size_t bytes) {
  auto* at = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Lost();
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return MUSTER_OK;
}

int muster_job::Receive(Frame& frame, std::string& body) {
  if (const int code = Read(&frame, sizeof frame); code != MUSTER_OK) return code;
  body.resize(frame.bytes);
  return Read(body.data(), body.size());
}

int muster_job::ReadEnd(const std::string& body) {
  End end{};
  if (body.size() < sizeof end) return Lost();
  std::memcpy(&end, body.data(), sizeof end);
  is_over = true;
  has_last_weights = end.has_last_weights != 0;
  error = body.substr(sizeof end);
  return end.code;
}

int muster_job::RequireWork(const char* call) {
  if (at_work) return MUSTER_OK;
  return Fail(MUSTER_USAGE, "%s: there is no current slice or block", call);
}

extern "C" {

muster_job* muster_create(void) { return new (std::nothrow) muster_job; }

void muster_destroy(muster_job* job) { delete job; }

const char* muster_error(const muster_job* job) { return job->error.c_str(); }

int muster_add_variable(muster_job* job, const char* name, const int64_t* shape, int dimensions,
                        const muster_variable_options* options) {
  const auto refuse = [&](const char* why) {
    job->Fail(MUSTER_USAGE, "variable %zu \"%s\": %s", job->variables.size(),
              name == nullptr ? "" : name, why);
    return -1;
  };
  if (job->memory != nullptr) return refuse("add all variables before their memory is used");
  if (name == nullptr || *name == '\0') return refuse("expected a name");
  if (dimensions < 0 || dimensions > kMostDimensions) return refuse("expected 0 to 64 dimensions");
  for (const Described& other : job->variables) {
    if (other.name == name) return refuse("this name is taken");
  }
  size_t count = 1;
  for (int i = 0; i < dimensions; ++i) {
    constexpr size_t kMost = size_t{1} << 36;
    if (shape[i] <= 0 || static_cast<size_t>(shape[i]) > kMost / count)
      return refuse("expected positive dimensions and at most 2^36 elements");
    count *= static_cast<size_t>(shape[i]);
  }
  Described variable{.name = name, .shape = {shape, shape + dimensions}, .offset = job->floats};
  variable.settings.dimensions = static_cast<uint32_t>(dimensions);
  variable.settings.learning_rate_multiplier = 1;
  if (options != nullptr && options->has_weight_decay != 0) {
    variable.settings.has_weight_decay = 1;
    variable.settings.weight_decay = options->weight_decay;
  }
  if (options != nullptr && options->has_learning_rate_multiplier != 0)
    variable.settings.learning_rate_multiplier = options->learning_rate_multiplier;
  job->floats += (count + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
  job->variables.push_back(std::move(variable));
  return static_cast<int>(job->variables.size()) - 1;
}

float* muster_weights(muster_job* job, int variable) {
  if (variable < 0 || static_cast<size_t>(variable) >= job->variables.size()) {
    job->Fail(MUSTER_USAGE, "there is no variable %d", variable);
    return nullptr;
  }
  if (!job->Allocate()) return nullptr;
  return job->memory + job->variables[static_cast<size_t>(variable)].offset;
}

float* muster_gradient(muster_job* job, int variable) {
  float* const weights = muster_weights(job, variable);
  return weights == nullptr ? nullptr : weights + job->floats;
}

int muster_join(muster_job* job, int64_t training_samples, int64_t validation_samples,
                int64_t test_samples) {
  if (job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_join: this job has joined already");
  }
  if (training_samples <= 0 || validation_samples < 0 || test_samples < 0) {
    return job->Fail(MUSTER_USAGE,
                     "muster_join: expected more than 0 training samples and at least 0 others");
  }
  if (!job->Allocate()) return job->variables.empty() ? MUSTER_USAGE : MUSTER_FAILURE;
  if (const int code = job->Start(); code != MUSTER_OK) return code;
  for (const Described& variable : job->variables) {
    std::string body(reinterpret_cast<const char*>(&variable.settings), sizeof variable.settings);
    body.append(reinterpret_cast<const char*>(variable.shape.data()),
                variable.shape.size() * sizeof(int64_t));
    body += variable.name;
    if (const int code = job->SendText(Kind::kVariable, body); code != MUSTER_OK) return code;
  }
  const Join join{.version = kVersion,
                  .pid = static_cast<uint32_t>(::getpid()),
                  .train_samples = training_samples,
                  .validation_samples = validation_samples,
                  .test_samples = test_samples};
  if (const int code = job->Send(Kind::kJoin, &join, sizeof join, job->memory_fd);
      code != MUSTER_OK) {
    return code;
  }
  Frame frame{};
  std::string body;
  if (const int code = job->Receive(frame, body); code != MUSTER_OK) return code;
  if (frame.kind == Kind::kEnd) return job->ReadEnd(body);
  if (frame.kind != Kind::kJoined || body.size() != sizeof job->joined) return job->Lost();
  std::memcpy(&job->joined, body.data(), sizeof job->joined);
  job->has_joined = true;
  return MUSTER_OK;
}

int64_t muster_rank(const muster_job* job) { return job->joined.rank; }
int64_t muster_first_step(const muster_job* job) { return job->joined.first_step; }
int64_t muster_total_steps(const muster_job* job) { return job->joined.total_steps; }
int64_t muster_steps_per_epoch(const muster_job* job) { return job->joined.steps_per_epoch; }
int64_t muster_slices(const muster_job* job) { return job->joined.slices; }

int muster_next(muster_job* job, double seconds, muster_work* work) {
  if (!job->has_joined) return job->Fail(MUSTER_USAGE, "muster_next: call muster_join first");
  if (job->is_over) return job->Fail(MUSTER_USAGE, "muster_next: the job is over");
  if (job->at_work) {
    return job->Fail(MUSTER_USAGE, "muster_next: complete the current work with muster_done first");
  }
  if (!job->asked) {
    if (const int code = job->Send(Kind::kNext, nullptr, 0); code != MUSTER_OK) return code;
    job->asked = true;
  }
  if (const int code = job->Await(seconds); code != MUSTER_OK) return code;
  Frame frame{};
  std::string body;
  if (const int code = job->Receive(frame, body); code != MUSTER_OK) return code;
  job->asked = false;
  *work = {};
  if (frame.kind == Kind::kEnd) {
    work->kind = MUSTER_END;
    return job->ReadEnd(body);
  }
  Work given{};
  if (frame.kind != Kind::kWork || body.size() < sizeof given) return job->Lost();
  std::memcpy(&given, body.data(), sizeof given);
  job->samples.resize((body.size() - sizeof given) / sizeof(int64_t));
  std::memcpy(job->samples.data(), body.data() + sizeof given, body.size() - sizeof given);
  constexpr muster_kind kKinds[] = {MUSTER_SLICE, MUSTER_STEP_END, MUSTER_TEST_BLOCK,
                                    MUSTER_VALIDATION_BLOCK};
  work->kind = kKinds[static_cast<uint32_t>(given.kind)];
  work->step = given.step;
  work->epoch = given.epoch;
  work->index = given.index;
  work->count = static_cast<int64_t>(job->samples.size());
  work->samples = job->samples.data();
  work->batch = given.batch;
  job->at_work = work->kind != MUSTER_STEP_END;
  job->has_reported = false;
  job->work = *work;
  return MUSTER_OK;
}

int muster_report(muster_job* job, double loss, int64_t correct) {
  if (const int code = job->RequireWork("muster_report"); code != MUSTER_OK) return code;
  if (job->has_reported) return job->Fail(MUSTER_USAGE, "muster_report: called twice");
  if (correct < 0 || correct > job->work.count) {
    return job->Fail(MUSTER_USAGE, "muster_report: expected 0 to %lld correct samples, got %lld",
                     static_cast<long long>(job->work.count), static_cast<long long>(correct));
  }
  job->has_reported = true;
  const Loss body{.correct = correct, .loss = loss};
  return job->Send(Kind::kLoss, &body, sizeof body);
}

int muster_push(muster_job* job, int variable) {
  if (const int code = job->RequireWork("muster_push"); code != MUSTER_OK) return code;
  if (job->work.kind != MUSTER_SLICE || !job->has_reported) {
    return job->Fail(MUSTER_USAGE, "muster_push: only in a slice, after muster_report");
  }
  if (variable < 0 || static_cast<size_t>(variable) >= job->variables.size()) {
    return job->Fail(MUSTER_USAGE, "muster_push: there is no variable %d", variable);
  }
  const auto number = static_cast<uint64_t>(variable);
  return job->Send(Kind::kPushed, &number, sizeof number);
}

int muster_done(muster_job* job) {
  if (const int code = job->RequireWork("muster_done"); code != MUSTER_OK) return code;
  if (!job->has_reported) {
    return job->Fail(MUSTER_USAGE, "muster_done: call muster_report first");
  }
  job->at_work = false;
  return job->Send(Kind::kDone, nullptr, 0);
}

int muster_fail(muster_job* job, const char* message) {
  if (!job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_fail: this job is not running");
  }
  const int code = job->SendText(Kind::kFailed, message);
  job->is_over = true;
  return code;
}

int muster_leave(muster_job* job) {
  if (!job->has_joined || job->is_over) {
    return job->Fail(MUSTER_USAGE, "muster_leave: this job is not running");
  }
  return job->Send(Kind::kLeave, nullptr, 0);
}

int muster_has_last_weights(const muster_job* job) { return job->has_last_weights ? 1 : 0; }

}  // extern "C"
