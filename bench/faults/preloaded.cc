// A library that is preloaded into a job's programs (LD_PRELOAD). On request, it makes calls fail
// that change files in the run's directory, shifts the job's wall clock, and makes workers sleep in
// each oneDNN operation. With these sleeps, steps take as long as those of large networks without
// using the processor. faults/preloaded.py controls the library through a small file while the job
// runs. MUSTER_CHAOS_FILE names this file and MUSTER_CHAOS_BELOW the directory.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "tests/checkpoint/interposed_calls.h"

namespace {

// Disk faults of one program. All fields have 64 bits, in the order of preloaded.py.
struct Disk {
  std::atomic<int64_t> next;    // index of the first call to fail, counted from now; 0: none
  std::atomic<int64_t> many;    // number of consecutive calls to fail
  std::atomic<int64_t> error;   // errno of the failures
  std::atomic<int64_t> failed;  // number of failed calls so far
};

struct Wanted {
  Disk server, launcher;
  std::atomic<int64_t> clock_seconds;       // shift of the wall clock
  std::atomic<int64_t> sleep_microseconds;  // sleep per operation of a worker
  std::atomic<int64_t> operations;          // number of operations of all workers so far
};
static_assert(std::atomic<int64_t>::is_always_lock_free);

Wanted* wanted = nullptr;
Disk* disk = nullptr;  // faults of this program
const char* below = nullptr;

__attribute__((constructor)) void Begin() {
  const char* const path = std::getenv("MUSTER_CHAOS_FILE");
  below = std::getenv("MUSTER_CHAOS_BELOW");
  if (path == nullptr || below == nullptr) return;
  const int fd = ::open(path, O_RDWR | O_CLOEXEC);
  if (fd < 0) std::abort();
  void* const memory = ::mmap(nullptr, sizeof(Wanted), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) std::abort();
  ::close(fd);
  wanted = static_cast<Wanted*>(memory);
  const bool server = std::strcmp(program_invocation_short_name, "muster-server") == 0;
  const bool launcher = std::strcmp(program_invocation_short_name, "muster") == 0;
  if (server || launcher) disk = server ? &wanted->server : &wanted->launcher;
}

int64_t Ahead() { return wanted == nullptr ? 0 : wanted->clock_seconds.load(); }

}  // namespace

namespace muster::testing {

bool WatchesCalls() { return disk != nullptr && disk->next.load() > 0; }

Fault OnCall(const char* /*name*/, const std::string& path, const std::string& /*to*/) {
  if (!path.starts_with(below)) return Fault::kNone;
  // A call fails if it finds the counter at 1. The counter stays at 1 until enough calls have
  // failed.
  int64_t next = disk->next.load();
  while (next > 1) {
    if (disk->next.compare_exchange_weak(next, next - 1)) return Fault::kNone;
  }
  if (next == 0) return Fault::kNone;
  if (disk->many.fetch_sub(1) <= 1) disk->next = 0;
  ++disk->failed;
  errno = static_cast<int>(disk->error.load());
  return Fault::kError;
}

}  // namespace muster::testing

extern "C" int dnnl_primitive_execute(const void* primitive, void* stream, int count,
                                      const void* arguments) {
  using Function = int (*)(const void*, void*, int, const void*);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  if (wanted != nullptr) ++wanted->operations;
  if (wanted != nullptr && wanted->sleep_microseconds > 0) {
    ::usleep(static_cast<useconds_t>(wanted->sleep_microseconds.load()));
  }
  return real(primitive, stream, count, arguments);
}

extern "C" int clock_gettime(clockid_t clock, timespec* time) {
  using Function = int (*)(clockid_t, timespec*);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "clock_gettime"));
  const int result = real(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += Ahead();
  return result;
}

extern "C" int gettimeofday(timeval* time, void* zone) {
  using Function = int (*)(timeval*, void*);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "gettimeofday"));
  const int result = real(time, zone);
  if (result == 0) time->tv_sec += Ahead();
  return result;
}

extern "C" time_t time(time_t* out) {
  using Function = time_t (*)(time_t*);
  static const auto real = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, "time"));
  const time_t now = real(nullptr) + Ahead();
  if (out != nullptr) *out = now;
  return now;
}
