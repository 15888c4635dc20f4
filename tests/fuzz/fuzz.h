// Shared by the fuzz targets. A target is a function that accepts any bytes. Its first comment says
// what it checks besides crashes. scripts/fuzz.sh runs targets; replay_main.cc runs them as tests
// on the inputs in corpus/.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

// FUZZ_TARGET(NAME) { ... }: the target of the file NAME.cc, which reads `data`, `size` bytes, and
// returns 0. libFuzzer wants one program for each, fuzz_replay has all of them.
#ifdef MUSTER_LIBFUZZER
#define FUZZ_TARGET(name) extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
#else
#define FUZZ_TARGET(name)                                                              \
  static int Fuzz_##name(const uint8_t* data, size_t size);                            \
  static const ::muster::fuzz::RegisteredTarget registered_##name(#name, Fuzz_##name); \
  static int Fuzz_##name(const uint8_t* data, size_t size)
#endif

namespace muster::fuzz {

using Target = int (*)(const uint8_t* data, size_t size);
struct RegisteredTarget {
  RegisteredTarget(const char* name, Target target);
};

// Reports a failed check and aborts, which both fuzzers and tests notice.
[[noreturn]] void Broken(const std::string& what);
inline void Require(bool holds, const char* what) {
  if (!holds) Broken(what);
}

// Runs `parse`. Returns false if it throws an Error whose text contains `names` and more. Anything
// else that it throws is a failed check.
bool OrError(std::string_view names, const std::function<void()>& parse);

// Discards log output of the code under test.
void SilenceLogs();

// Reads the input from the start. At its end, returns zeros.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() { return Number<uint8_t>(); }
  template <typename T>
  T Number() {
    T value{};
    const std::string_view bytes = Take(sizeof value);
    std::memcpy(&value, bytes.data(), bytes.size());
    return value;
  }
  // Text up to a zero byte, so that insertions by a fuzzer do not move its end.
  std::string Text() {
    std::string text(Take(std::min(rest_.find('\0'), rest_.size())));
    (void)Take(1);
    return text;
  }
  // Bytes after their two-byte length.
  std::string Piece() { return std::string(Take(Number<uint16_t>())); }
  std::string Rest() { return std::string(Take(rest_.size())); }

 private:
  std::string_view Take(size_t bytes) {
    const std::string_view taken = rest_.substr(0, bytes);
    rest_.remove_prefix(taken.size());
    return taken;
  }

  std::string_view rest_;
};

// A folder for a target's files. Each process has its own, removed at its end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;

  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Creates missing parent folders. Returns the path.
  std::string Write(const std::string& name, std::string_view bytes) const;
  // Removes all contents.
  void Clear() const;

 private:
  std::string path_;
};

}  // namespace muster::fuzz
