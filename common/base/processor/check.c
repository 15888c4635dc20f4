// Exits with a one-line message before the program reaches an instruction that this processor
// lacks.
//
// The check runs before all constructors of the program and its libraries, and is compiled for any
// x86-64 (CMakeLists.txt). It is written in C because C++ headers contain inline functions. The
// linker keeps only one copy of each, possibly one compiled with other flags.
#include <string.h>
#include <unistd.h>

#include "common/base/processor/needs.h"

enum { kUsage = 2 };  // ExitCode::kUsage of common/base/error.h

static const struct {
  unsigned need;
  const char* name;
} kNames[] = {
    {kNeedSse42, "SSE4.2"},      {kNeedPopcnt, "POPCNT"},     {kNeedAvx, "AVX"},
    {kNeedAvx2, "AVX2"},         {kNeedFma, "FMA"},           {kNeedBmi, "BMI1"},
    {kNeedBmi2, "BMI2"},         {kNeedAvx512f, "AVX512F"},   {kNeedAvx512vl, "AVX512VL"},
    {kNeedAvx512bw, "AVX512BW"}, {kNeedAvx512dq, "AVX512DQ"},
};

// Returns the missing extensions. __builtin_cpu_supports also checks that the kernel saves the
// registers.
static unsigned Missing(void) {
  unsigned has = 0;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("sse4.2")) has |= kNeedSse42;
  if (__builtin_cpu_supports("popcnt")) has |= kNeedPopcnt;
  if (__builtin_cpu_supports("avx")) has |= kNeedAvx;
  if (__builtin_cpu_supports("avx2")) has |= kNeedAvx2;
  if (__builtin_cpu_supports("fma")) has |= kNeedFma;
  if (__builtin_cpu_supports("bmi")) has |= kNeedBmi;
  if (__builtin_cpu_supports("bmi2")) has |= kNeedBmi2;
  if (__builtin_cpu_supports("avx512f")) has |= kNeedAvx512f;
  if (__builtin_cpu_supports("avx512vl")) has |= kNeedAvx512vl;
  if (__builtin_cpu_supports("avx512bw")) has |= kNeedAvx512bw;
  if (__builtin_cpu_supports("avx512dq")) has |= kNeedAvx512dq;
  return kProcessorNeeds & ~has;
}

// A line under construction. stdio may not work this early.
struct Line {
  char text[512];
  size_t size;
};

static void Append(struct Line* line, const char* text) {
  const size_t room = sizeof(line->text) - line->size;
  const size_t size = strlen(text) < room ? strlen(text) : room;
  memcpy(line->text + line->size, text, size);
  line->size += size;
}

static void CheckProcessor(int argc, char** argv, char** environment) {
  (void)environment;
  const unsigned missing = Missing();
  if (missing == 0) return;
  const char* program = argc > 0 ? argv[0] : "muster";
  const char* slash = strrchr(program, '/');
  struct Line line = {.size = 0};
  Append(&line, slash != NULL ? slash + 1 : program);
  Append(&line, ": error: this processor lacks ");
  const char* separator = "";
  for (size_t i = 0; i < sizeof(kNames) / sizeof(kNames[0]); ++i) {
    if ((missing & kNames[i].need) == 0) continue;
    Append(&line, separator);
    Append(&line, kNames[i].name);
    separator = ", ";
  }
  Append(&line, "; this program was built for " MUSTER_ARCH
                ": use another machine, or build with cmake -DMUSTER_ARCH=x86-64\n");
  if (write(STDERR_FILENO, line.text, line.size) < 0) _exit(kUsage);  // ignore failure
  _exit(kUsage);
}

__attribute__((section(".preinit_array"),
               used)) static void (*const check_processor)(int, char**, char**) = CheckProcessor;
