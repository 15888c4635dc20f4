// What the fuzzers' targets share. A target is one function that takes any bytes, and checks more
// than that nothing crashes: what else, its first line says. scripts/fuzz.sh runs them;
// replay_main.cc hands them what is kept in corpus/, as a test.
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

// A promise is broken: says so, and aborts, which a fuzzer and a test both notice.
[[noreturn]] void Broken(const std::string& what);
inline void Require(bool holds, const char* what) {
  if (!holds) Broken(what);
}

// Runs `parse`. What it throws is an Error whose text has `names` in it, and more than that: all
// else is a promise broken. False: it threw.
bool OrError(std::string_view names, const std::function<void()>& parse);

// Nothing of what the code under test says to its log is worth reading.
void SilenceLogs();

// The input, from its beginning on; zeros when there is no more of it.
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
  // Up to a zero byte: text, whose end stays where it is when a fuzzer puts something into it.
  std::string Text() {
    std::string text(Take(std::min(rest_.find('\0'), rest_.size())));
    (void)Take(1);
    return text;
  }
  // Behind its length, two bytes.
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

// A folder for the files of a target; one for each process, gone with it.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;

  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Folders in between are made. Returns the path.
  std::string Write(const std::string& name, std::string_view bytes) const;
  // Whatever is in it.
  void Clear() const;

 private:
  std::string path_;
};

}  // namespace muster::fuzz
