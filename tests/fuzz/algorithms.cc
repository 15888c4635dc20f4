// A choice of algorithms, as a checkpoint and a message have it: what is refused is an Error that
// says so, and what is taken is written as the same.
#include <string_view>

#include "tests/fuzz/fuzz.h"
#include "worker/backend/algorithm_table.h"

namespace muster::fuzz {
namespace {

// With a bit of the input that says so, the checksum is put right.
std::string WithChecksum(std::string text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  constexpr char kDigits[] = "0123456789abcdef";
  text += "end: ";
  for (int shift = 60; shift >= 0; shift -= 4) text += kDigits[hash >> shift & 15];
  return text + '\n';
}

void Check(const std::string& text) {
  OrError("the choice of algorithms (worker.autotune)", [&] {
    const AlgorithmTable table = ParseAlgorithmTable(text);
    if (TextOf(table) != text) Broken("written as something else: " + TextOf(table));
  });
}

}  // namespace
}  // namespace muster::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace muster::fuzz;
  SilenceLogs();
  Input input(data, size);
  const bool puts_right = (input.Byte() & 1) != 0;
  const std::string text = input.Rest();
  Check(puts_right ? WithChecksum(text) : text);
  return 0;
}
